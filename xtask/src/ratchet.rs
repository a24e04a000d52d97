//! Numbers that may only fall: mistakes that exist are counted, new ones fail. A lower number is
//! entered at once.

use std::collections::BTreeMap;

/// Compares the places found in each room with the number entered for it. `what` names the places,
/// `file` holds the table.
pub(crate) fn only_fewer(
    found: &BTreeMap<String, Vec<String>>,
    entered: &[(&str, usize)],
    what: &str,
    file: &str,
) -> Vec<String> {
    let mut entered: BTreeMap<&str, usize> = entered.iter().copied().collect();
    let mut wrong = Vec::new();
    for (room, places) in found {
        let (number, may) = (places.len(), entered.remove(room.as_str()).unwrap_or_default());
        if number > may {
            wrong.push(format!("{room}: {number} {what}, {may} may:"));
            wrong.extend(places.iter().map(|place| format!("    {place}")));
        } else if number < may {
            wrong.push(format!("{room}: {number} {what}: enter that number in {file} instead of {may}"));
        }
    }
    wrong.extend(entered.keys().map(|gone| format!("{file}: there is no {gone} any more")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_only_fall() {
        let found = BTreeMap::from([("room".to_owned(), vec!["a:1".to_owned(), "a:2".to_owned()])]);
        let compared = |entered: &[(&str, usize)]| only_fewer(&found, entered, "lines", "x.rs");
        assert_eq!(compared(&[("room", 2)]), Vec::<String>::new());
        assert_eq!(compared(&[("room", 1)]), ["room: 2 lines, 1 may:", "    a:1", "    a:2"]);
        assert_eq!(compared(&[("room", 3)]), ["room: 2 lines: enter that number in x.rs instead of 3"]);
        assert_eq!(compared(&[("room", 2), ("gone", 1)]), ["x.rs: there is no gone any more"]);
    }
}
