// Files in and out of the page: open another report, save what ran for other tools.

import { h, icon, menu } from "../dom.js";
import { isExported, load, openFile } from "../data.js";
import { saveFile } from "../save.js";

const OPEN_ICON = "M3 7V5h6l2 2h10v12H3zm0 0h18", SHARE_ICON = "M12 15V3m-4 4 4-4 4 4M5 12v8h14v-8";
const FORMATS = [["perfetto", "Perfetto", "for ui.perfetto.dev"], ["chrome", "Chrome trace", "JSON, for chrome://tracing and ui.perfetto.dev"]];

export function exportButton(reportOf) {
  const button = h("button.ghost.export", { type: "button", title: "Save what ran for other tools", "aria-label": "Save what ran for other tools", "aria-haspopup": "menu", onclick: () => open() }, icon(SHARE_ICON));
  const save = async (format, note) => {
    note.textContent = "Writing…";
    try {
      const { facts, columns } = await load(`${reportOf()}/trace-file/${format}`);
      saveFile(facts.file_name, new Blob([columns.content], { type: facts.content_type }));
      note.textContent = `Saved ${facts.file_name}`;
    } catch (error) {
      note.textContent = isExported ? "This file does not hold it: use `tremula export REPORT`." : error.message;
    }
  };
  const open = () => menu(button, () => {
    const note = h("p.note", { role: "status" });
    return [FORMATS.map(([format, name, about]) => h("button.item", { type: "button", title: about, onclick: () => save(format, note) }, name)), note];
  });
  return button;
}

// A button, and dropping a file anywhere on the page.
export function openButton() {
  const input = h("input", { type: "file", accept: ".pop", hidden: true, "aria-label": "Report to open", onchange: () => input.files[0] && take(input.files[0]) });
  const button = h("button.ghost.open-file", { type: "button", title: "Open a report (or drop a file on the page)", "aria-label": "Open a report", onclick: () => input.click() }, icon(OPEN_ICON));
  listenForDrops();
  return [button, input];
}

function listenForDrops() {
  const hasFile = (event) => [...event.dataTransfer?.types ?? []].includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && document.body.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    document.body.classList.remove("dropping");
    take(event.dataTransfer.files[0]);
  });
}

// Sends a file to the server that shows this page, and shows its report; says why not, in a dialog.
async function take(file) {
  const dialog = message(`Opening ${file.name}…`);
  try {
    const number = await openFile(file);
    history.replaceState(null, "", `#/summary?report=${number}`);
    location.reload();
  } catch (error) {
    dialog.querySelector("p").textContent = error.message;
  }
}

function message(text) {
  const dialog = h("dialog.help.message", { "aria-label": "Open a report", onclose: () => dialog.remove() },
    h("p", { role: "status" }, text), h("button.plain", { type: "button", onclick: () => dialog.close() }, "Close"));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
