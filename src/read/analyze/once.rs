//! Deduplication of texts that several points of a sweep share.

/// Maximum number of points listed by name; the others are counted.
const NAMED: usize = 3;

/// Returns each distinct text in order. If there are several points, given as name and texts, a text is prefixed with
/// the points that have it.
pub fn once(points: &[(String, Vec<String>)]) -> Vec<String> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for (point, of_point) in points {
        for text in of_point {
            match texts.iter_mut().find(|(known, _)| known == text) {
                Some((_, names)) if names.last() == Some(&point.as_str()) => {}
                Some((_, names)) => names.push(point),
                None => texts.push((text, vec![point])),
            }
        }
    }
    let begin = |names: &[&str]| match names.len() {
        _ if points.len() == 1 => String::new(),
        all if all == points.len() => format!("all of {all}: "),
        few if few <= NAMED => format!("{}: ", names.join(", ")),
        many => format!("{} and {} more: ", names[..NAMED].join(", "), many - NAMED),
    };
    texts.into_iter().map(|(text, names)| begin(&names) + text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once_of(points: &[(&str, &[&str])]) -> Vec<String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        once(&points.iter().map(|(name, texts)| ((*name).to_owned(), owned(texts))).collect::<Vec<_>>())
    }

    #[test]
    fn equal_texts_are_merged_with_their_points() {
        assert_eq!(once_of(&[("b8", &["quick", "busy", "quick"])]), ["quick", "busy"]);
        assert_eq!(once_of(&[("b8", &["quick"]), ("b16", &["busy", "quick"])]), ["all of 2: quick", "b16: busy"]);
        assert_eq!(once_of(&[("b8", &["quick"]), ("b16", &[])]), ["b8: quick"]);
        let five = ["a", "b", "c", "d", "e"].map(|name| (name, &["quick"][..]));
        assert_eq!(once_of(&[&five[..], &[("f", &[])]].concat()), ["a, b, c and 2 more: quick"]);
        assert_eq!(once_of(&[]), Vec::<String>::new());
    }
}
