// execution
import { h } from "./dom.js";

export async function executionView() {
  return { element: h("div", {}, "…") };
}
