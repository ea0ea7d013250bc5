// liveness
import { h } from "./dom.js";

export async function livenessView() {
  return { element: h("div", {}, "…") };
}
