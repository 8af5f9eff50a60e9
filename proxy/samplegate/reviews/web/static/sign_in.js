// Reads a token from the URL fragment, which only this browser sees, and removes it from the URL at once.
"use strict";

const field = document.getElementById("token");
if (location.hash.length > 1 && field) {
  const found = new URLSearchParams(location.hash.slice(1));
  field.value = found.get("token") ?? decodeURIComponent(location.hash.slice(1));
  history.replaceState(null, "", location.pathname + location.search);
  if (field.value.startsWith("once1.")) field.form.requestSubmit(); // the code of a one-use link, valid for a minute
  else field.form.querySelector("button").focus();
}
