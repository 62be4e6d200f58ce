// Applies the chosen theme before the first paint. Without a choice, the system decides.
{
  const chosen = localStorage.getItem("peeklock.theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
}
