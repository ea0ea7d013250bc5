// The floor plan of the chips with arrows on it: routes from tile to tile, wider for more bytes.

import { colour } from "../colours.js";
import { arrow } from "./arrows.js";
import { FloorPlan } from "./floorplan.js";

// options: those of FloorPlan, and routes [{from, to, bytes}], the largest first
export class RoutePlan extends FloorPlan {
  overlay(pen) {
    const { routes } = this.options, most = Math.max(1, ...routes.map((route) => route.bytes));
    for (const { from, to, bytes } of [...routes].reverse()) {
      const width = 0.8 + 3.2 * (bytes / most), ends = [this.middle(from), this.middle(to)];
      pen.strokeStyle = pen.fillStyle = colour("surface"); // a rim, so that it is seen on any tile
      arrow(pen, ...ends, width + 2);
      pen.strokeStyle = pen.fillStyle = colour("bad");
      arrow(pen, ...ends, width);
    }
    this.element.dataset.arrows = routes.length;
  }

  middle(tile) {
    const { x, y, w, h } = this.boxes[tile];
    return [x + w / 2, y + h / 2];
  }
}
