// operations
import { h } from "./dom.js";

export async function operationsView() {
  return { element: h("div", {}, "…") };
}
