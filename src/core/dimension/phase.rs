//! Phases of a training iteration. A new phase needs a variant here and a mark in the code that measures it: samples,
//! records, summaries, tables and charts use [`Phases`].

use std::array;
use std::borrow::Cow;
use std::ops::{Index, IndexMut};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;

keyword_enum!(
    /// Phases in the order of execution; together they fill the iteration except for the overhead of the loop itself.
    Phase {
        /// Wait until the step's images are on the device; zero if they stay there during the whole run.
        Input = "input",
        /// Forward pass and loss.
        Forward = "forward",
        /// Backward pass, without the time it was blocked by communication.
        Backward = "backward",
        /// All-reduce time that backward did not hide: `backward` plus this ends when the optimizer starts.
        ExposedAllreduce = "exposed_allreduce",
        /// Weight update.
        Optimizer = "optimizer",
    }
);

impl Phase {
    /// Number of phases.
    pub const COUNT: usize = Phase::KEYWORDS.len();

    /// Returns true if every iteration has this phase. Records omit the input phase if no images were read.
    pub const fn is_always(self) -> bool {
        !matches!(self, Phase::Input)
    }

    /// Returns the column header, the name for sentences and the explanation.
    const fn texts(self) -> [&'static str; 3] {
        match self {
            Phase::Input => ["input", "input", "waiting for the step's images"],
            Phase::Forward => ["forward", "forward", "forward and loss"],
            Phase::Backward => ["backward", "backward", "backward, without time blocked by communication"],
            Phase::ExposedAllreduce => ["exposed", "exposed all-reduce", "all-reduce not hidden by backward"],
            Phase::Optimizer => ["optimizer", "optimizer", "weight update"],
        }
    }

    /// Returns the column header.
    pub const fn title(self) -> &'static str {
        self.texts()[0]
    }

    /// Returns the name for legends and sentences.
    pub const fn description(self) -> &'static str {
        self.texts()[1]
    }

    /// Returns an explanation for users.
    pub const fn meaning(self) -> &'static str {
        self.texts()[2]
    }
}

/// One value per phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases<T>([T; Phase::COUNT]);

impl<T> Phases<T> {
    /// Calls `value` for each phase.
    pub fn from_fn(mut value: impl FnMut(Phase) -> T) -> Phases<T> {
        Phases(array::from_fn(|index| value(Phase::ALL[index])))
    }

    /// Iterates over the phases and their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, &T)> {
        Phase::ALL.iter().copied().zip(&self.0)
    }

    /// Iterates over the phases and their mutable values, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Phase, &mut T)> {
        Phase::ALL.iter().copied().zip(&mut self.0)
    }

    /// Applies `change` to each value.
    pub fn map<U>(self, mut change: impl FnMut(Phase, T) -> U) -> Phases<U> {
        let mut index = 0;
        Phases(self.0.map(|value| {
            index += 1;
            change(Phase::ALL[index - 1], value)
        }))
    }
}

impl<T> Phases<Option<T>> {
    /// Returns all values, or `None` if one is missing.
    pub fn all(self) -> Option<Phases<T>> {
        let values: Vec<T> = self.0.into_iter().collect::<Option<_>>()?;
        values.try_into().ok().map(Phases)
    }
}

impl<T> Index<Phase> for Phases<T> {
    type Output = T;

    fn index(&self, phase: Phase) -> &T {
        &self.0[phase as usize]
    }
}

impl<T> IndexMut<Phase> for Phases<T> {
    fn index_mut(&mut self, phase: Phase) -> &mut T {
        &mut self.0[phase as usize]
    }
}

impl<T: Serialize> Serialize for Phases<T> {
    /// Serializes as a map with the phases' keywords as keys, to be flattened into an object with other keys.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<T: JsonSchema> JsonSchema for Phases<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Phases_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        let properties: Map<String, Value> =
            Phase::KEYWORDS.iter().map(|phase| ((*phase).to_owned(), value.clone().to_value())).collect();
        let required: Vec<&str> =
            Phase::ALL.iter().filter(|phase| phase.is_always()).map(|phase| phase.keyword()).collect();
        json_schema!({ "type": "object", "properties": properties, "required": required })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_value_and_key() {
        let phases = Phases::from_fn(|phase| phase as u32);
        assert_eq!(phases[Phase::Optimizer], 4);
        assert_eq!(phases.map(|_, value| value + 1)[Phase::Forward], 2);
        let json = serde_json::to_string(&phases).expect("JSON");
        assert_eq!(json, r#"{"input":0,"forward":1,"backward":2,"exposed_allreduce":3,"optimizer":4}"#);
        assert_eq!(Phases::from_fn(|phase| (phase != Phase::Backward).then_some(1)).all(), None);
        assert_eq!(Phases::from_fn(Some).all().expect("all")[Phase::Backward], Phase::Backward);
    }
}
