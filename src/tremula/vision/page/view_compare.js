// compare
import { h } from "./dom.js";

export async function compareView() {
  return { element: h("div", {}, "…") };
}
