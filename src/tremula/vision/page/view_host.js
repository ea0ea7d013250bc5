// host
import { h } from "./dom.js";

export async function hostView() {
  return { element: h("div", {}, "…") };
}
