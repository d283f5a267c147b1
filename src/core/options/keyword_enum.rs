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
}

/// Defines an enum whose values are keywords: `Markdown = "markdown" | "md"` is written as `markdown` and parsed from
/// both.
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
    }
}
