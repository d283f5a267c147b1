//! Definition of declared options for clap, and the values that were typed.

use std::marker::PhantomData;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::options::help::with_default;
use crate::options::keyword_enum::KeywordEnum;
use crate::options::option_table::{OptionFacts, OptionSpec, Options, Range, Set};
use crate::options::usage::usage;
use crate::options::value::Shape;

/// Options of a configuration as they were typed, for clap's `flatten`: those of a worker, or those of the launcher.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionTexts<C, const IS_WORKER: bool> {
    /// Option and text, in the order of the table.
    values: Vec<(&'static str, String)>,
    config: PhantomData<C>,
}

/// Options of `ringmark`.
pub type LauncherOptions<C> = OptionTexts<C, false>;

/// Options of `ringmark-worker`, which has a few more.
pub type WorkerOptions<C> = OptionTexts<C, true>;

impl<C: Options, const IS_WORKER: bool> OptionTexts<C, IS_WORKER> {
    /// Replaces values of `config` by those that were typed, except for keywords of the launcher.
    pub fn apply(&self, mut config: C) -> anyhow::Result<C> {
        let (typed, others): (Vec<_>, Vec<_>) = C::options().into_iter().partition(|option| {
            let keyword = option.facts.keyword_of_launcher.map(|(keyword, _)| keyword);
            self.typed(option.name()).is_some_and(|text| Some(text) != keyword)
        });
        for option in typed {
            let (name, text) = (option.name(), self.typed(option.name()).unwrap_or_default());
            (option.set)(&mut config, text).with_context(|| format!("--{name} {text}")).map_err(usage)?;
        }
        for option in others {
            (option.default_of)(&config).map_or(Ok(()), |text| (option.set)(&mut config, &text))?;
        }
        // Two options may set one field: the later one has won.
        for option in C::options() {
            let Some(text) = self.typed(option.name()) else { continue };
            let (mut again, value) = (config.clone(), (option.get)(&config));
            if (option.set)(&mut again, text).is_ok() && (option.get)(&again) != value {
                let name = option.name();
                let what = format!("--{name} {text} conflicts with another option, which sets it to {value}");
                bail!(usage(anyhow!("{what}: use only one of them")));
            }
        }
        Ok(config)
    }

    /// Returns the typed value of this option.
    pub fn typed(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(typed, _)| *typed == name).map(|(_, text)| text.as_str())
    }

    fn options() -> impl Iterator<Item = OptionSpec<C>> {
        C::options().into_iter().filter(|option| IS_WORKER || !option.facts.is_for_worker)
    }
}

impl<C: Options, const IS_WORKER: bool> Args for OptionTexts<C, IS_WORKER> {
    fn augment_args(command: Command) -> Command {
        let default = C::default();
        let arguments = Self::options().flat_map(|OptionSpec { mut facts, set, get, .. }| {
            if !IS_WORKER {
                facts.default = facts.default_of_launcher.or(facts.default);
            }
            facts.keyword_of_launcher = facts.keyword_of_launcher.filter(|_| !IS_WORKER);
            [flag(&facts), Some(argument(facts, get(&default), set))].into_iter().flatten()
        });
        command.args(arguments)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Defines the flag of another program, which is hidden in the help.
fn flag(facts: &OptionFacts) -> Option<Arg> {
    let (flag, _) = facts.flag?;
    Some(Arg::new(flag).long(flag).action(ArgAction::SetTrue).hide(true).conflicts_with(facts.name))
}

fn argument<C: Options>(facts: OptionFacts, default: String, set: Set<C>) -> Arg {
    let default = Some(facts.default.map_or(default, str::to_owned)).filter(|text| !text.is_empty());
    let meaning = facts.keyword_of_launcher.map(|(keyword, meaning)| format!("; {keyword}: {meaning}"));
    let help = facts.help.to_owned() + &meaning.unwrap_or_default();
    let help = default.map_or(help.clone(), |default| with_default(&help, &default));
    let argument = Arg::new(facts.name).long(facts.name).help(help).aliases(facts.aliases);
    let argument = argument.conflicts_with_all(facts.conflicts);
    let argument = facts.requires.into_iter().fold(argument, Arg::requires);
    let argument = facts.short.into_iter().fold(argument, Arg::short);
    match facts.shape {
        Shape::Flag => {
            let flag = argument.action(ArgAction::SetTrue);
            match facts.variable {
                // Sets the flag unless it is empty, 0, no, off or false.
                Some(variable) => flag.env(variable).value_parser(FalseyValueParser::new()),
                None => flag,
            }
        }
        Shape::Keyword(keywords, aliases) => argument
            .value_name(facts.value_name)
            .value_parser(PossibleValuesParser::new(possible_values(keywords, aliases))),
        Shape::Text => {
            let set = Arc::new(set);
            let keyword = facts.keyword_of_launcher.map(|(keyword, _)| keyword);
            let or_keyword = keyword.map_or(String::new(), |keyword| format!(", or {keyword}"));
            let choice = facts.range.map(|Range { low, high, .. }| format!("choose {low} to {high}{or_keyword}"));
            let parse = move |text: &str| match set(&mut C::default(), text) {
                _ if keyword == Some(text) => Ok(text.to_owned()),
                Ok(()) => Ok(text.to_owned()),
                Err(error) => Err(choice.clone().unwrap_or_else(|| format!("{error:#}"))),
            };
            argument.value_name(facts.value_name).value_parser(parse).allow_negative_numbers(true)
        }
    }
}

impl<C: Options, const IS_WORKER: bool> FromArgMatches for OptionTexts<C, IS_WORKER> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |OptionSpec { facts: OptionFacts { name, flag, shape, .. }, .. }: OptionSpec<C>| {
            let is_typed = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
            if let Some((_, value)) = flag.filter(|(flag, _)| is_typed(*flag)) {
                return Some((name, value.to_owned()));
            }
            let text = match shape {
                // An environment variable may also unset it.
                Shape::Flag => return matches.get_flag(name).then(|| (name, "yes".to_owned())),
                _ => matches.get_one::<String>(name)?.clone(),
            };
            is_typed(name).then_some((name, text))
        };
        Ok(OptionTexts { values: Self::options().filter_map(typed).collect(), config: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns a parser of the keywords of `T`, for options outside of configurations; the help lists them.
pub fn keyword<T: KeywordEnum>() -> impl TypedValueParser<Value = T> {
    let values = PossibleValuesParser::new(possible_values(T::KEYWORDS, T::ALIASES));
    values.try_map(|keyword| keyword.parse::<T>().map_err(|error| error.to_string()))
}

/// Returns a parser of the keywords of both sets.
pub fn keyword_of_either<One: KeywordEnum, Other: KeywordEnum, T>() -> impl TypedValueParser<Value = T>
where
    T: From<One> + From<Other> + Clone + Send + Sync + 'static,
{
    let other = possible_values(Other::KEYWORDS, Other::ALIASES);
    let values = PossibleValuesParser::new(possible_values(One::KEYWORDS, One::ALIASES).chain(other));
    values.try_map(|keyword| match keyword.parse::<One>() {
        Ok(one) => Ok(T::from(one)),
        Err(_) => keyword.parse::<Other>().map(T::from).map_err(|error| error.to_string()),
    })
}

fn possible_values(
    keywords: &'static [&'static str],
    aliases: &'static [(&'static str, &'static str)],
) -> impl Iterator<Item = PossibleValue> {
    keywords.iter().map(|keyword| {
        let aliases = aliases.iter().filter(|(_, of)| of == keyword).map(|(alias, _)| *alias);
        PossibleValue::new(*keyword).aliases(aliases)
    })
}
