// tree
import { h } from "./dom.js";

export async function treeView() {
  return { element: h("div", {}, "…") };
}
