/** A row of buttons of which one is pressed. */

import { el } from "./dom";

export interface Segmented<T extends string> {
  readonly element: HTMLElement;
  press(value: T): void;
}

export function segmented<T extends string>(
  label: string,
  choices: readonly { value: T; text: string; title?: string }[],
  chosen: (value: T) => void,
): Segmented<T> {
  const buttons = choices.map(({ value, text, title }) =>
    el(
      "button",
      { type: "button", "data-value": value, "aria-pressed": "false", title, on: { click: () => chosen(value) } },
      text,
    ),
  );
  return {
    element: el("div", { class: "segmented", role: "group", "aria-label": label }, ...buttons),
    press(value) {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
    },
  };
}
