// Saves files from the page: tables as CSV, charts as PNG or SVG.

export const SAVE_ICON = "M12 4v11m-4-4 4 4 4-4M5 20h14";
export const COLUMNS_ICON = "M4 5h16v14H4zM9.500 5v14M14.500 5v14";

export function saveFile(name, blob) {
  const address = URL.createObjectURL(blob), a = document.createElement("a");
  Object.assign(a, { href: address, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
