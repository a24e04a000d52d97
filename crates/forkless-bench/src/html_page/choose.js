// Shows the lines of a plot whose boxes are checked.
document.querySelectorAll('.plot').forEach(plot => {
  const lines = plot.querySelectorAll(':scope > svg .series');
  plot.querySelectorAll('input').forEach((box, index) => {
    const show = () => lines[index].toggleAttribute('hidden', !box.checked);
    box.onchange = show;
    show();
  });
});
