// Sorts a table by the column whose head is clicked, or chosen by the Enter key: numbers by value, sizes by their bytes,
// once up and once down.
document.querySelectorAll('thead th').forEach(head => {
  head.tabIndex = 0;
  head.onkeydown = event => { if (event.key == 'Enter') head.click(); };
  head.onclick = () => {
    const body = head.closest('table').tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const direction = head.ariaSort == 'ascending' ? -1 : 1;
    const text = row => row.children[column].textContent;
    const unit = words => 1024 ** (1 + ['KiB', 'MiB', 'GiB'].indexOf(words.split(' ')[1]));
    const value = words => parseFloat(words) * unit(words);
    head.parentNode.querySelectorAll('th').forEach(other => other.ariaSort = null);
    head.ariaSort = direction > 0 ? 'ascending' : 'descending';
    [...body.rows].sort((one, other) => {
      const [a, b] = [value(text(one)), value(text(other))];
      return direction * (isNaN(a) || isNaN(b) ? text(one).localeCompare(text(other)) : a - b);
    }).forEach(row => body.append(row));
  };
});
