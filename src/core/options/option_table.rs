//! Declares each option once, by [`config_options!`](crate::config_options!): field, default, name, range and help. The
//! definition for clap, the validation, the arguments of a worker and the settings in logs and manifests are derived from it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, bail};

use crate::options::value::{OptionValue, Shape};

pub(super) type Get<C> = Box<dyn Fn(&C) -> String + Send + Sync>;
pub(super) type Set<C> = Box<dyn Fn(&mut C, &str) -> anyhow::Result<()> + Send + Sync>;
type DefaultOf<C> = Box<dyn Fn(&C) -> Option<String> + Send + Sync>;
type Condition<C> = Box<dyn Fn(&C) -> bool + Send + Sync>;

/// Option of a configuration `C`.
pub struct OptionSpec<C> {
    pub(super) facts: OptionFacts,
    pub(super) get: Get<C>,
    pub(super) set: Set<C>,
    is_free_on_resume: Condition<C>,
    pub(super) default_of: DefaultOf<C>,
}

/// Properties of an option, without access to its value.
#[derive(Default)]
pub(super) struct OptionFacts {
    pub(super) name: &'static str,
    pub(super) short: Option<char>,
    pub(super) aliases: &'static [&'static str],
    pub(super) names_in_bandwidth: Option<(Option<char>, &'static [&'static str])>,
    pub(super) flag: Option<(&'static str, &'static str)>,
    pub(super) variable: Option<&'static str>,
    pub(super) value_name: &'static str,
    pub(super) help: &'static str,
    pub(super) shape: Shape,
    pub(super) default: Option<&'static str>,
    pub(super) default_of_launcher: Option<&'static str>,
    pub(super) is_set_by_profile: bool,
    pub(super) keyword_of_launcher: Option<(&'static str, &'static str)>,
    pub(super) conflicts: &'static [&'static str],
    pub(super) requires: Option<&'static str>,
    pub(super) is_for_worker: bool,
    pub(super) is_set_in_baseline: bool,
    pub(super) is_for_servers: bool,
    pub(super) resolved_from: Option<&'static str>,
    pub(super) derived_from: &'static [&'static str],
    pub(super) range: Option<Range>,
    pub(super) order: u8,
}

pub(super) struct Range {
    pub(super) low: String,
    pub(super) high: String,
    pub(super) contains: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// Declares a configuration: each field with its default and, after `=>`, its options.
///
/// ```ignore
/// config_options! {
///     /// One run.
///     RunConfig {
///         /// Images of a rank and iteration.
///         batch_size: u32 = 128 => option("batch-size", "IMAGES", "Images per rank and iteration").range(1u32..=65_536),
///     }
/// }
/// ```
///
/// | after `=>` | options |
/// |---|---|
/// | `option(name, value, help)` | the field's option |
/// | `shared(function)` | the option that `function` makes of the references to the field |
/// | `group(options)` | options of a field that is a configuration itself |
/// | `each(options)` | options that need more than one field |
///
/// Methods behind the parentheses apply to each of these options. The help lists options by [`order`](OptionSpec::order),
/// then as they are declared.
#[macro_export]
macro_rules! config_options {
    (@specs option $field:ident ($name:literal, $value_name:literal, $help:literal)) => {
        [$crate::options::option_table::OptionSpec::for_field(
            $name, $value_name, $help, |config: &Self| &config.$field, |config: &mut Self| &mut config.$field,
        )]
    };
    (@specs shared $field:ident ($function:expr)) => {
        [$function(|config: &Self| &config.$field, |config: &mut Self| &mut config.$field)]
    };
    (@specs group $field:ident ($options:expr)) => {
        $options.into_iter().map(|option| option.within(|config: &Self| &config.$field, |config| &mut config.$field))
    };
    (@specs each $field:ident ($options:expr)) => { $options };
    ($(#[$meta:meta])* $config:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $default:expr
            $(=> $kind:ident $arguments:tt $(.$method:ident $method_arguments:tt)*)?),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        pub struct $config { $($(#[$field_meta])* pub $field: $type),+ }

        impl Default for $config {
            fn default() -> $config {
                $config { $($field: $default),+ }
            }
        }

        impl $crate::options::option_table::Options for $config {
            fn options() -> Vec<$crate::options::option_table::OptionSpec<$config>> {
                let mut all = Vec::new();
                $($($crate::options::option_table::add(
                    &mut all,
                    $crate::config_options!(@specs $kind $field $arguments),
                    |option| option $(.$method $method_arguments)*,
                );)?)+
                $crate::options::option_table::in_order(all)
            }
        }
    };
}

/// Applies `change` to each of `options` and adds it to `all`.
pub fn add<C>(
    all: &mut Vec<OptionSpec<C>>,
    options: impl IntoIterator<Item = OptionSpec<C>>,
    change: impl Fn(OptionSpec<C>) -> OptionSpec<C>,
) {
    all.extend(options.into_iter().map(change));
}

/// Sorts options by their [`order`](OptionSpec::order).
pub fn in_order<C>(mut options: Vec<OptionSpec<C>>) -> Vec<OptionSpec<C>> {
    options.sort_by_key(|option| option.facts.order);
    options
}

impl<C: 'static> OptionSpec<C> {
    /// Creates the option of the field that `get` and `get_mut` access.
    pub fn for_field<T: OptionValue + 'static>(
        name: &'static str,
        value_name: &'static str,
        help: &'static str,
        get: fn(&C) -> &T,
        get_mut: fn(&mut C) -> &mut T,
    ) -> OptionSpec<C> {
        OptionSpec::typed(
            (name, value_name, help),
            move |config| get(config).text(),
            move |config, value: T| *get_mut(config) = value,
        )
    }

    /// Creates the option of a value that may be missing.
    pub fn for_value<T: OptionValue + 'static>(
        name: &'static str,
        value_name: &'static str,
        help: &'static str,
        get: fn(&C) -> Option<T>,
        set: fn(&mut C, T),
    ) -> OptionSpec<C> {
        OptionSpec::typed((name, value_name, help), move |config| get(config).text(), set)
    }

    fn typed<T: OptionValue + 'static>(
        (name, value_name, help): (&'static str, &'static str, &'static str),
        get: impl Fn(&C) -> String + Send + Sync + 'static,
        set: impl Fn(&mut C, T) + Send + Sync + 'static,
    ) -> OptionSpec<C> {
        let set = move |config: &mut C, text: &str| {
            set(config, T::parse(text)?);
            Ok(())
        };
        OptionSpec::new(name, value_name, help, get, set).with(|facts| facts.shape = T::SHAPE)
    }

    /// Creates an option without a field of its own: `get` returns its text, empty without a value, and `set` parses one.
    pub fn new(
        name: &'static str,
        value_name: &'static str,
        help: &'static str,
        get: impl Fn(&C) -> String + Send + Sync + 'static,
        set: impl Fn(&mut C, &str) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> OptionSpec<C> {
        let facts = OptionFacts { name, value_name, help, ..OptionFacts::default() };
        OptionSpec {
            facts,
            get: Box::new(get),
            set: Box::new(set),
            is_free_on_resume: Box::new(|_| false),
            default_of: Box::new(|_| None),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut OptionFacts)) -> OptionSpec<C> {
        change(&mut self.facts);
        self
    }

    /// Rejects values outside `range`, including NaN; a missing value is accepted.
    pub fn range<T: OptionValue + PartialOrd + Send + Sync + 'static>(self, range: RangeInclusive<T>) -> OptionSpec<C> {
        let (low, high) = (range.start().text(), range.end().text());
        let contains = Box::new(move |text: &str| T::parse(text).is_ok_and(|value| range.contains(&value)));
        self.with(|facts| facts.range = Some(Range { low, high, contains }))
    }

    /// Sets the default in the help of an option that has none.
    pub fn default_is(self, default: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.default = Some(default))
    }

    /// Sets the default in the help of `ringmark` if it differs from the worker's.
    pub fn default_of_launcher(self, default: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.default_of_launcher = Some(default))
    }

    /// Marks an option that `ringmark` sets from the profile of a sweep unless it is typed; `defaults` is for the help.
    pub fn set_by_profile(self, defaults: &'static str) -> OptionSpec<C> {
        self.default_of_launcher(defaults).with(|facts| facts.is_set_by_profile = true)
    }

    /// Accepts, behind `ringmark`, a keyword that the launcher replaces by a value; `meaning` is for the help.
    pub fn keyword_of_launcher(self, keyword: &'static str, meaning: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.keyword_of_launcher = Some((keyword, meaning)))
    }

    /// Returns the name without dashes.
    pub fn name(&self) -> &'static str {
        self.facts.name
    }

    /// Adds a short name.
    pub fn short(self, short: char) -> OptionSpec<C> {
        self.with(|facts| facts.short = Some(short))
    }

    /// Adds hidden aliases.
    pub fn aliases(self, aliases: &'static [&'static str]) -> OptionSpec<C> {
        self.with(|facts| facts.aliases = aliases)
    }

    /// Sets the short name and the hidden aliases of the bandwidth benchmark, which stand for other options elsewhere.
    pub fn names_in_bandwidth(self, short: impl Into<Option<char>>, aliases: &'static [&'static str]) -> OptionSpec<C> {
        let short = short.into();
        self.with(|facts| facts.names_in_bandwidth = Some((short, aliases)))
    }

    /// Applies the names of the bandwidth benchmark.
    pub fn in_bandwidth(self) -> OptionSpec<C> {
        self.with(|facts| {
            if let Some((short, aliases)) = facts.names_in_bandwidth {
                (facts.short, facts.aliases) = (short, aliases);
            }
        })
    }

    /// Adds the environment variable that sets a flag if it is not typed.
    pub fn variable(self, name: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.variable = Some(name))
    }

    /// Adds the flag of another program that stands for `value`, as `--fp16-allreduce` for `--wire fp16`.
    pub fn flag(self, name: &'static str, value: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.flag = Some((name, value)))
    }

    /// Rejects the option together with any of these.
    pub fn conflicts_with(self, conflicts: &'static [&'static str]) -> OptionSpec<C> {
        self.with(|facts| facts.conflicts = conflicts)
    }

    /// Rejects the option without this one.
    pub fn requires(self, option: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.requires = Some(option))
    }

    /// Hides the option from `ringmark`, which chooses its value: only the worker accepts it.
    pub fn for_worker(self) -> OptionSpec<C> {
        self.with(|facts| facts.is_for_worker = true)
    }

    /// Marks an option that a sweep sets itself in a baseline.
    pub fn set_in_baseline(self) -> OptionSpec<C> {
        self.with(|facts| facts.is_set_in_baseline = true)
    }

    /// Marks an option that applies only to kv-stores with servers.
    pub fn for_servers(self) -> OptionSpec<C> {
        self.with(|facts| facts.is_for_servers = true)
    }

    /// Marks a requested value that a record replaces by the resolved value, as a keyword of the launcher is; empty is
    /// no value.
    pub fn resolved_from(self, requested: &'static str) -> OptionSpec<C> {
        self.with(|facts| facts.resolved_from = Some(requested))
    }

    /// Marks an option whose value follows from one of these options if that is given.
    pub fn derived_from(self, options: &'static [&'static str]) -> OptionSpec<C> {
        self.with(|facts| facts.derived_from = options)
    }

    /// Lets a run that resumes from a checkpoint change the option, which does not affect what a step computes.
    pub fn free_on_resume(self) -> OptionSpec<C> {
        self.free_on_resume_if(|_| true)
    }

    /// Lets a run that resumes from a checkpoint change the option if `is_free` is true of its configuration.
    pub fn free_on_resume_if(self, is_free: fn(&C) -> bool) -> OptionSpec<C> {
        OptionSpec { is_free_on_resume: Box::new(is_free), ..self }
    }

    /// Sets the default of the configurations for which `default` returns one, from options that were given.
    pub fn default_by<T: OptionValue + 'static>(self, default: fn(&C) -> Option<T>) -> OptionSpec<C> {
        OptionSpec { default_of: Box::new(move |config| default(config).map(|value| value.text())), ..self }
    }

    /// Sets the place in the help: options of a lower order come first; the default is 0.
    pub fn order(self, order: u8) -> OptionSpec<C> {
        self.with(|facts| facts.order = order)
    }

    /// Converts it to the option of a configuration that contains a `C`.
    pub fn within<O: 'static>(self, inner: fn(&O) -> &C, inner_mut: fn(&mut O) -> &mut C) -> OptionSpec<O> {
        let OptionSpec { facts, get, set, is_free_on_resume, default_of } = self;
        OptionSpec {
            facts: OptionFacts { order: 0, ..facts },
            get: Box::new(move |outer| get(inner(outer))),
            set: Box::new(move |outer, text| set(inner_mut(outer), text)),
            is_free_on_resume: Box::new(move |outer| is_free_on_resume(inner(outer))),
            default_of: Box::new(move |outer| default_of(inner(outer))),
        }
    }

    /// Returns true if a sweep sets the option itself in a baseline.
    pub fn is_set_in_baseline(&self) -> bool {
        self.facts.is_set_in_baseline
    }

    /// Returns true if the option applies only to kv-stores with servers.
    pub fn is_for_servers(&self) -> bool {
        self.facts.is_for_servers
    }

    /// Returns true if a record replaces this requested value by the resolved value.
    pub fn is_resolved(&self, requested: &str) -> bool {
        let keyword = self.facts.keyword_of_launcher.map(|(keyword, _)| keyword);
        [keyword, self.facts.resolved_from].contains(&Some(requested))
    }

    /// Returns true if the value follows from another option of `requested`, a map from names with dashes.
    pub fn is_derived(&self, requested: &BTreeMap<String, String>) -> bool {
        let mut others = self.facts.derived_from.iter().filter_map(|other| requested.get(&format!("--{other}")));
        others.any(|value| !value.is_empty())
    }

    fn check(&self, config: &C) -> anyhow::Result<()> {
        let (name, value) = (self.name(), (self.get)(config));
        match &self.facts.range {
            Some(Range { low, high, contains }) if !value.is_empty() && !contains(&value) => {
                bail!("--{name} {value} is out of range: choose {low} to {high}")
            }
            _ => Ok(()),
        }
    }
}

/// Configuration that is made of options.
pub trait Options: Default + Clone + Send + Sync + 'static {
    /// Returns every option in the order of the help.
    fn options() -> Vec<OptionSpec<Self>>;
}

/// Returns the option of this name.
pub fn find<C: Options>(name: &str) -> Option<OptionSpec<C>> {
    C::options().into_iter().find(|option| option.name() == name)
}

/// Returns true if the profile of a sweep sets the option of this name.
pub fn is_set_by_profile<C: Options>(name: &str) -> bool {
    find::<C>(name).is_some_and(|option| option.facts.is_set_by_profile)
}

/// Rejects the first value outside its range; the message names option, value and range.
pub fn check_ranges<C: Options>(config: &C) -> anyhow::Result<()> {
    C::options().iter().try_for_each(|option| option.check(config))
}

/// Returns every option with its value as it is typed: empty without a value, `yes` for a flag that is set.
pub fn settings<C: Options>(config: &C) -> Vec<(&'static str, String)> {
    C::options().iter().map(|option| (option.name(), (option.get)(config))).collect()
}

/// Returns the options that must not change if a run resumes from a checkpoint, with their values.
pub fn fixed_settings<C: Options>(config: &C) -> impl Iterator<Item = (&'static str, String)> {
    let fixed = C::options().into_iter().filter(|option| !(option.is_free_on_resume)(config));
    fixed.map(|option| (option.name(), (option.get)(config)))
}

/// Sets the option of this name as if `text` had been typed; the message names both.
pub fn set<C: Options>(config: &mut C, name: &str, text: &str) -> anyhow::Result<()> {
    let typed = || format!("--{name} {text}");
    let option = find::<C>(name).with_context(typed)?;
    (option.set)(config, text).and_then(|()| option.check(config)).with_context(typed)
}

/// An option in a file of options.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    /// Name without dashes.
    pub name: String,
    /// Values; none if the option is not written, `true` for a flag that is set.
    pub values: Vec<String>,
    /// True if a command derives the values from the hosts, the profile or the benchmark unless they are given.
    pub is_derived: bool,
}

impl Setting {
    /// Creates a setting.
    pub fn new(name: impl Into<String>, values: Vec<String>) -> Setting {
        Setting { name: name.into(), values, is_derived: false }
    }

    /// Creates a setting that is derived unless it is given.
    pub fn derived(name: impl Into<String>, values: Vec<String>) -> Setting {
        Setting { is_derived: true, ..Setting::new(name, values) }
    }
}

/// Returns every option of `ringmark` for a file of options. Flags of other programs have no value: the options that they
/// stand for have it.
pub fn filled_in<C: Options>(config: &C) -> Vec<Setting> {
    let mut filled_in = Vec::new();
    for option in C::options().into_iter().filter(|option| !option.facts.is_for_worker) {
        let value = match (option.get)(config) {
            text if text.is_empty() => None,
            _ if option.facts.shape == Shape::Flag => Some("true".to_owned()),
            text => Some(text),
        };
        filled_in.push(Setting::new(option.name(), value.into_iter().collect()));
        filled_in.extend(option.facts.flag.map(|(flag, _)| Setting::new(flag, Vec::new())));
    }
    filled_in
}

/// An option whose value differs from the requested one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedOption {
    /// Name with dashes.
    pub name: String,
    /// Requested value, or a list of values.
    pub requested: String,
    /// Actual value.
    pub value: String,
}

/// Returns the options of `config` whose value is none of those in `requested`, a map from names with dashes. Only options
/// for which `is_compared` is true, given the value that was asked for, are compared.
pub fn changed_options<C: Options>(
    config: &C,
    requested: &BTreeMap<String, String>,
    is_compared: impl Fn(&OptionSpec<C>, &str) -> bool,
) -> Vec<ChangedOption> {
    let changed = |option: OptionSpec<C>| {
        let name = format!("--{}", option.name());
        let requested = requested.get(&name).filter(|requested| is_compared(&option, requested))?.clone();
        let value = (option.get)(config);
        // Words change between versions: what both mean is compared.
        let means = |text: &str| {
            let mut config = C::default();
            (option.set)(&mut config, text).is_ok() && (option.get)(&config) == value
        };
        let is_requested = requested == value || means(&requested) || requested.split(',').any(means);
        (!is_requested).then_some(ChangedOption { name, requested, value })
    };
    C::options().into_iter().filter_map(changed).collect()
}

/// Returns the arguments that start a worker with this configuration: only values that differ from the default, which may
/// depend on other options.
pub fn arguments<C: Options>(config: &C) -> Vec<String> {
    let default = C::default();
    let mut arguments = Vec::new();
    for option in C::options() {
        let value = (option.get)(config);
        let is_default = value == (option.get)(&default) && (option.default_of)(config).is_none();
        if value.is_empty() || is_default {
            continue;
        }
        arguments.push(format!("--{}", option.name()));
        if option.facts.shape != Shape::Flag {
            arguments.push(value);
        }
    }
    arguments
}
