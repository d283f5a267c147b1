//! Closed sets of words: enums that are the same on the command line, in file names and in records.

use std::str::FromStr;

/// A closed set of words, made by [`words!`](crate::words!).
pub trait Words: FromStr<Err = anyhow::Error> + Clone + Send + Sync + 'static {
    /// Every value as it is typed, in the order of the declaration.
    const WORDS: &'static [&'static str];
    /// What else is understood, each with the word that it stands for.
    const ALIASES: &'static [(&'static str, &'static str)];
}

/// Makes an enum whose values are words: `Markdown = "markdown" | "md"` is written as the first and read as both.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+ }

        impl $crate::words::Words for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const ALIASES: &'static [(&'static str, &'static str)] = &[$($(($alias, $word),)*)+];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.pad(match self { $($name::$variant => $word),+ })
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = ::anyhow::Error;

            fn from_str(text: &str) -> ::anyhow::Result<$name> {
                match text {
                    $($word $(| $alias)* => Ok($name::$variant),)+
                    _ => ::anyhow::bail!("{text:?} is none of {}", [$($word),+].join(", ")),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    words!(
        /// Two.
        Format {
            /// With an alias.
            Markdown = "markdown" | "md",
            /// Without one.
            Table = "table",
        }
    );

    #[test]
    fn words_and_aliases_are_read_and_words_written() {
        assert_eq!((Format::WORDS, Format::ALIASES), (&["markdown", "table"][..], &[("md", "markdown")][..]));
        for (typed, format) in [("markdown", Format::Markdown), ("md", Format::Markdown), ("table", Format::Table)] {
            assert_eq!(typed.parse::<Format>().expect("one of them"), format);
        }
        assert_eq!(format!("{:>10}", Format::Markdown), "  markdown");
        let refused = "html".parse::<Format>().expect_err("none of them").to_string();
        assert_eq!(refused, "\"html\" is none of markdown, table");
    }
}
