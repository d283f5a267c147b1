//! Lists of hosts in Slurm's compact form: `node[001-512,600],login`.

use anyhow::{Context, ensure};

/// Maximum number of hosts in one list: a typing error in a range must not fill the memory.
const MAX_HOSTS: usize = 1 << 20;

/// Maximum number of digits that are counted up; a longer number is part of the name.
const MAX_DIGITS: usize = 9;

/// Joins names with commas, and those that count up with brackets. Keeps their order.
///
/// `node01, node02, node03, node07, login` becomes `node[01-03,07],login`.
pub fn compact<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<Group> = Vec::new();
    for name in names {
        if !groups.last_mut().is_some_and(|last| last.extend(name)) {
            groups.push(Group::new(name));
        }
    }
    groups.iter().map(Group::text).collect::<Vec<_>>().join(",")
}

/// Splits a list at the commas outside brackets.
pub fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    list.split(move |character| {
        is_inside = match character {
            '[' => true,
            ']' => false,
            _ => is_inside,
        };
        character == ',' && !is_inside
    })
}

/// Returns the names that one item of a list stands for: itself, or one for each number in its brackets.
///
/// `node[01-03,07]` is node01, node02, node03 and node07.
pub fn expand(item: &str) -> anyhow::Result<Vec<String>> {
    // An item that starts with a bracket is an address.
    let Some((prefix, rest)) = item.split_once('[').filter(|(prefix, _)| !prefix.is_empty()) else {
        return Ok(vec![item.to_owned()]);
    };
    let fix = || match item.matches('[').count() {
        0 | 1 => format!("{item:?} is not a valid host list: write node[001-008,010]"),
        _ => format!(
            "{item:?} has several lists in brackets: write one for each rack, as in rack1node[01-04],rack2node[01-04]"
        ),
    };
    let (ranges, suffix) = rest.split_once(']').with_context(fix)?;
    ensure!(!suffix.contains(['[', ']']), fix());
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<usize>().ok()).flatten().with_context(fix)
    };
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (number(first)?, number(last)?);
        ensure!(from <= to, "{item:?} counts down from {first} to {last}: write the smaller number first");
        ensure!(to - from < MAX_HOSTS - names.len(), "{item:?} names more than {MAX_HOSTS} hosts");
        names.extend((from..=to).map(|number| format!("{prefix}{number:0width$}{suffix}", width = first.len())));
    }
    Ok(names)
}

/// Consecutive names that differ in the number at their end.
struct Group<'a> {
    prefix: &'a str,
    /// First and last number of each range, as written. Empty if the name does not end in a number.
    ranges: Vec<[&'a str; 2]>,
}

impl<'a> Group<'a> {
    fn new(name: &'a str) -> Group<'a> {
        match split(name) {
            Some((prefix, digits)) => Group { prefix, ranges: vec![[digits; 2]] },
            None => Group { prefix: name, ranges: Vec::new() },
        }
    }

    /// Adds a name; returns false if it belongs to another group.
    fn extend(&mut self, name: &'a str) -> bool {
        let Some((_, digits)) = split(name).filter(|(prefix, _)| *prefix == self.prefix) else { return false };
        let Some([first, last]) = self.ranges.last_mut() else { return false };
        // Same format as in `expand`.
        let next = last.parse::<u64>().map(|last| format!("{:0width$}", last + 1, width = first.len()));
        match next.is_ok_and(|next| next == digits) {
            true => *last = digits,
            false => self.ranges.push([digits; 2]),
        }
        true
    }

    fn text(&self) -> String {
        let range =
            |[first, last]: &[&str; 2]| if first == last { (*first).to_owned() } else { format!("{first}-{last}") };
        let ranges: Vec<String> = self.ranges.iter().map(range).collect();
        match &self.ranges[..] {
            [] => self.prefix.to_owned(),
            [[first, last]] if first == last => format!("{}{first}", self.prefix),
            _ => format!("{}[{}]", self.prefix, ranges.join(",")),
        }
    }
}

/// Splits a name before the number at its end. Returns `None` for a name without a number and for an address, also in
/// brackets.
fn split(name: &str) -> Option<(&str, &str)> {
    let prefix = name.trim_end_matches(|character: char| character.is_ascii_digit());
    let digits = &name[prefix.len()..];
    let can_count =
        prefix.ends_with(|character: char| character.is_ascii_alphabetic() || matches!(character, '-' | '_'));
    (can_count && !prefix.contains(['[', ']', ':']) && (1..=MAX_DIGITS).contains(&digits.len()))
        .then_some((prefix, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(list: &str) -> Vec<String> {
        items(list).flat_map(|item| expand(item).expect(item)).collect()
    }

    #[test]
    fn consecutive_names_are_joined_and_expanded() {
        for (names, list) in [
            ("node01 node02 node03 node07 login", "node[01-03,07],login"),
            ("n8 n9 n10 n11", "n[8-11]"),
            ("n08 n09 n10 n100", "n[08-10,100]"),
            ("n2 n1", "n[2,1]"),
            ("a1 b1 a2", "a1,b1,a2"),
            ("10.0.0.1 10.0.0.2", "10.0.0.1,10.0.0.2"),
            ("rack1-node1 rack1-node2 rack2-node1", "rack1-node[1-2],rack2-node1"),
            ("n09 n9", "n[09,9]"),
            ("n99999999999 n1", "n99999999999,n1"),
            ("localhost", "localhost"),
        ] {
            let names: Vec<&str> = names.split(' ').collect();
            assert_eq!(compact(names.iter().copied()), list);
            assert_eq!(expanded(list), names, "{list}");
        }
    }

    #[test]
    fn eight_thousand_hosts_are_one_item() {
        let names: Vec<String> = (1..=8192).map(|number| format!("gpu-partition-rack-node{number:05}")).collect();
        let list = compact(names.iter().map(String::as_str));
        assert_eq!(list, "gpu-partition-rack-node[00001-08192]");
        assert_eq!(expanded(&list), names);
    }

    #[test]
    fn invalid_item_names_the_fix() {
        let error = |item: &str| expand(item).expect_err(item).to_string();
        for item in ["n[1-", "n[1-2", "n[]", "n[a-b]", "n[1-9999999999]"] {
            assert_eq!(error(item), format!("{item:?} is not a valid host list: write node[001-008,010]"));
        }
        assert!(error("rack[1-2]n[1-3]").contains(" has several lists in brackets: write one for each rack"));
        assert_eq!(error("n[3-1]"), "\"n[3-1]\" counts down from 3 to 1: write the smaller number first");
        assert_eq!(error("n[1-99999999]"), "\"n[1-99999999]\" names more than 1048576 hosts");
    }
}
