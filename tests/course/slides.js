// Shows one slide at a time: the one whose number is the fragment of the address. Without this script all are shown.
const slides = [...document.querySelectorAll("section")];
const current = () => Math.min(Math.max(parseInt(location.hash.slice(1)) || 1, 1), slides.length);
const go = (page) => location.replace("#" + Math.min(Math.max(page, 1), slides.length));
function show() {
  slides.forEach((slide, i) => slide.classList.toggle("shown", i + 1 === current()));
  scrollTo(0, 0);
}
const pageOf = {
  ArrowRight: (p) => p + 1, ArrowDown: (p) => p + 1, PageDown: (p) => p + 1, Enter: (p) => p + 1,
  ArrowLeft: (p) => p - 1, ArrowUp: (p) => p - 1, PageUp: (p) => p - 1, Backspace: (p) => p - 1,
  Home: () => 1, End: () => slides.length,
  " ": (p, event) => (event.shiftKey ? p - 1 : p + 1),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !pageOf[event.key]) return;
  event.preventDefault();
  go(pageOf[event.key](current(), event));
});
addEventListener("click", () => { if (getSelection().isCollapsed) go(current() + 1); });
addEventListener("hashchange", show);
document.documentElement.classList.add("one");
show();
