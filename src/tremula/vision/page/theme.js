// Light or dark: as the reader's system has it, until the reader chooses.

import { remember, remembered } from "./dom.js";

const KEY = "tremula-theme";
export const THEME_ICON = "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z";

export function startTheme() {
  const theme = remembered(KEY);
  if (theme) document.documentElement.dataset.theme = theme;
}

export function switchTheme() {
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  remember(KEY, document.documentElement.dataset.theme);
}
