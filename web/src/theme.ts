// Light or dark: the system's choice, until the button makes another.

import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";

const KEY = "parda-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme | null {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : null;
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(chosen() ?? (dark.matches ? "dark" : "light"));
  useEffect(() => {
    const follow = () => {
      if (!chosen()) setTheme(dark.matches ? "dark" : "light");
    };
    dark.addEventListener("change", follow);
    return () => dark.removeEventListener("change", follow);
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem(KEY, next);
    setTheme(next);
  };
  return [theme, toggle];
}
