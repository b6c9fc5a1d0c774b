// Sets the theme before the page is drawn, so that it never flashes.
"use strict";
try {
  const theme = new URLSearchParams(location.search).get("theme") ?? localStorage.getItem("penstock.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a private window keeps nothing */ }
