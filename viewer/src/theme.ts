/** Light, dark, or as the system says. */

import type { Mode } from "./color";
import type { Store, Theme } from "./state";

const query = (): MediaQueryList => matchMedia("(prefers-color-scheme: dark)");

export function modeOf(theme: Theme): Mode {
  if (theme === "auto") return query().matches ? "dark" : "light";
  return theme;
}

/** Keep `<html data-mode>` right. Call it before panels subscribe: they read colours from the page. */
export function followTheme(store: Store): void {
  const apply = (): void => {
    document.documentElement.dataset.mode = modeOf(store.state.theme);
  };
  apply();
  store.subscribe((_, keys) => {
    if (keys.has("theme")) apply();
  });
  query().addEventListener("change", () => store.touch("theme"));
}
