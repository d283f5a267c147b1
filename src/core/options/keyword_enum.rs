//! Closed sets of keywords: enums with the same spelling on the command line, in file names and in records.

use std::str::FromStr;

/// A closed set of keywords, defined by [`keyword_enum!`](crate::keyword_enum!).
pub trait KeywordEnum: FromStr<Err = anyhow::Error> + Copy + PartialEq + Send + Sync + 'static {
    /// All values, in declaration order.
    const ALL: &'static [Self];
    /// Keywords of all values, in the same order.
    const KEYWORDS: &'static [&'static str];
    /// Accepted aliases, each with its keyword.
    const ALIASES: &'static [(&'static str, &'static str)];

    /// Returns the keyword of the value.
    fn keyword(self) -> &'static str;

    /// Lists the keywords of the values that satisfy `condition`: `a, b or c`.
    fn alternatives(condition: impl Fn(Self) -> bool) -> String {
        let keywords = Self::ALL.iter().filter(|value| condition(**value)).map(|value| value.keyword());
        match &keywords.collect::<Vec<_>>()[..] {
            [first @ .., second, last] => [first, &[&format!("{second} or {last}")]].concat().join(", "),
            several => several.concat(),
        }
    }
}

/// Defines an enum whose values are keywords: `Markdown = "markdown" | "md"` is written as `markdown` and parsed from
/// both. A second enum, `Choice { Auto = "auto", .. }`, has one more value before those of the first.
#[macro_export]
macro_rules! keyword_enum {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $keyword:literal $(| $alias:literal)*),+ $(,)?
    }) => {
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord,
            ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema,
        )]
        $(#[$doc])*
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $keyword $(, alias = $alias)*)] $variant),+ }

        impl $crate::options::keyword_enum::KeywordEnum for $name {
            const ALL: &'static [$name] = &[$($name::$variant),+];
            const KEYWORDS: &'static [&'static str] = &[$($keyword),+];
            const ALIASES: &'static [(&'static str, &'static str)] = &[$($(($alias, $keyword),)*)+];

            fn keyword(self) -> &'static str {
                match self { $($name::$variant => $keyword),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.pad($crate::options::keyword_enum::KeywordEnum::keyword(*self))
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = ::anyhow::Error;

            fn from_str(text: &str) -> ::anyhow::Result<$name> {
                match text {
                    $($keyword $(| $alias)* => Ok($name::$variant),)+
                    _ => ::anyhow::bail!("{text:?} is not one of {}", [$($keyword),+].join(", ")),
                }
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($variants:tt)+ }
     $(#[$choice_doc:meta])* $choice:ident {
        $(#[$extra_doc:meta])* $extra:ident = $keyword:literal $(| $alias:literal)*, ..
    }) => {
        $crate::keyword_enum!($(#[$doc])* $name { $($variants)+ });
        $crate::keyword_enum!(
            $(#[$choice_doc])* $choice { $(#[$extra_doc])* $extra = $keyword $(| $alias)*, $($variants)+ }
        );

        impl $choice {
            /// Returns the chosen value; `None` for the additional keyword.
            pub fn chosen(self) -> Option<$name> {
                let place = (self as usize).checked_sub(1)?;
                <$name as $crate::options::keyword_enum::KeywordEnum>::ALL.get(place).copied()
            }
        }

        impl From<$name> for $choice {
            fn from(value: $name) -> $choice {
                <$choice as $crate::options::keyword_enum::KeywordEnum>::ALL[value as usize + 1]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    keyword_enum!(
        /// An enum with two values.
        Format {
            /// A value with an alias.
            Markdown = "markdown" | "md",
            /// A value without an alias.
            Table = "table",
        }

        /// An enum with these values and one more.
        FormatChoice {
            /// The additional value.
            Auto = "auto" | "any",
            ..
        }
    );

    #[test]
    fn aliases_are_read_and_keywords_written() {
        assert_eq!((Format::KEYWORDS, Format::ALIASES), (&["markdown", "table"][..], &[("md", "markdown")][..]));
        for (typed, format) in [("markdown", Format::Markdown), ("md", Format::Markdown), ("table", Format::Table)] {
            assert_eq!(typed.parse::<Format>().expect("one of them"), format);
        }
        assert_eq!(format!("{:>10}", Format::Markdown), "  markdown");
        assert_eq!(serde_json::from_str::<Format>("\"md\"").expect("an alias"), Format::Markdown);
        let refused = "html".parse::<Format>().expect_err("none of them").to_string();
        assert_eq!(refused, "\"html\" is not one of markdown, table");
        let alternatives = |number: usize| FormatChoice::alternatives(|value| (value as usize) < number);
        assert_eq!([1, 2, 3].map(alternatives), ["auto", "auto or markdown", "auto, markdown or table"]);
    }

    #[test]
    fn choice_has_the_values_and_one_more() {
        assert_eq!(FormatChoice::KEYWORDS, ["auto", "markdown", "table"]);
        let chosen = ["any", "md", "table"].map(|text| text.parse::<FormatChoice>().expect("one of them").chosen());
        assert_eq!(chosen, [None, Some(Format::Markdown), Some(Format::Table)]);
        assert_eq!(FormatChoice::from(Format::Table), FormatChoice::Table);
    }
}
