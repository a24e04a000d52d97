//! From a position in a function's bytecode to its line: CPython's `Objects/lnotab_notes.txt` (3.8
//! to 3.10) and `Objects/locations.md` (3.11 and newer).

/// How a version of CPython stores lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// Pairs of differences: bytes of code, lines (3.8, 3.9).
    Lnotab,
    /// Pairs: the length of a range, the difference of its line (3.10).
    Ranges,
    /// Entries of varying length: instructions, line, columns (3.11 and newer).
    Locations,
}

/// The line at `position` bytes into the bytecode; `None` for code that belongs to no line.
pub(crate) fn line_at(table: Table, bytes: &[u8], first: i32, position: i64) -> Option<u32> {
    let first = i64::from(first);
    let line = match table {
        // A frame that has not begun.
        _ if position < 0 => Some(first),
        Table::Lnotab => Some(in_lnotab(bytes, first, position)),
        Table::Ranges => in_ranges(bytes, first, position),
        Table::Locations => in_locations(bytes, first, position),
    };
    line.and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0)
}

fn in_lnotab(bytes: &[u8], first: i64, position: i64) -> i64 {
    let (mut address, mut line) = (0, first);
    for &[code, lines] in bytes.as_chunks().0 {
        address += i64::from(code);
        if address > position {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    line
}

fn in_ranges(bytes: &[u8], first: i64, position: i64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut end, mut line) = (0, first);
    for &[code, lines] in bytes.as_chunks().0 {
        end += i64::from(code);
        let lines = lines.cast_signed();
        if lines != NO_LINE {
            line += i64::from(lines);
        }
        if end > position {
            return (lines != NO_LINE).then_some(line);
        }
    }
    None
}

fn in_locations(bytes: &[u8], first: i64, position: i64) -> Option<i64> {
    let mut bytes = bytes.iter().copied();
    let (mut end, mut line) = (0, first);
    while let Some(head) = bytes.next() {
        // The kind of entry, and its instructions of two bytes.
        let (kind, length) = (head >> 3 & 15, i64::from(head & 7) + 1);
        end += 2 * length;
        let mut has_line = true;
        match kind {
            // Columns only, in one byte.
            0..=9 => drop(bytes.next()?),
            // The next line, or the one after, and columns.
            10..=12 => {
                line += i64::from(kind) - 10;
                bytes.next()?;
                bytes.next()?;
            }
            13 => line += signed(&mut bytes)?,
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            _ => has_line = false,
        }
        if end > position {
            return has_line.then_some(line);
        }
    }
    None
}

/// Six bits a byte, the lowest first.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut value = 0;
    for shift in (0..36).step_by(6) {
        let byte = bytes.next()?;
        value |= i64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    Some(if value & 1 == 1 { -(value >> 1) } else { value >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_lines_may_be_negative() {
        let table = [0, 1, 4, 2, 6, 0xff];
        let at = |position| line_at(Table::Lnotab, &table, 10, position);
        assert_eq!([0, 3, 4, 9, 10, 99].map(at), [11, 11, 13, 13, 12, 12].map(Some));
    }

    #[test]
    fn a_range_may_have_no_line() {
        let table = [4, 1, 2, 0x80, 6, 2];
        let at = |position| line_at(Table::Ranges, &table, 10, position);
        assert_eq!([0, 2, 4, 6, 10, 12].map(at), [Some(11), Some(11), None, Some(13), Some(13), None]);
    }

    #[test]
    fn entries_of_every_kind_are_stepped_over() {
        let table = [
            0b1000_0000,
            0x12, // Columns only: the first line.
            0b1101_1001,
            1,
            2, // The next line, two instructions.
            0b1110_1000,
            3, // A line before, without columns.
            0b1111_0000,
            4,
            0,
            65,
            1,
            2,           // Two lines on, columns of two bytes.
            0b1111_1000, // No line.
        ];
        let at = |position| line_at(Table::Locations, &table, 10, position);
        assert_eq!([0, 2, 4, 6, 8, 10].map(at), [Some(10), Some(11), Some(11), Some(10), Some(12), None]);
    }

    /// A program that lies may hold anything.
    #[test]
    fn every_table_of_three_bytes_ends() {
        for first in 0..=255 {
            for second in 0..=255 {
                for table in [Table::Lnotab, Table::Ranges, Table::Locations] {
                    for position in [-1, 0, 7, i64::MAX] {
                        line_at(table, &[first, second, first], i32::MAX, position);
                    }
                }
            }
        }
    }
}
