//! The phases of a training iteration. A new phase is a line here and a mark where it is measured: samples, records,
//! summaries, tables and charts go through [`Phases`].

use std::array;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;

keyword_enum!(
    /// A phase, in the order in which an iteration comes to it; together they fill the iteration but for what the loop
    /// itself takes.
    Phase {
        /// Forward and loss.
        Forward = "forward",
        /// Backward without the time that communication blocked it.
        Backward = "backward",
        /// All-reduce that backward did not hide: `backward` plus this ends where the optimizer starts.
        ExposedAllreduce = "exposed_allreduce",
        /// Weight update.
        Optimizer = "optimizer",
    }
);

impl Phase {
    /// Number of phases.
    pub const COUNT: usize = Phase::KEYWORDS.len();

    /// At the head of a column.
    pub const fn title(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::ExposedAllreduce => "exposed",
            Phase::Optimizer => "optimizer",
        }
    }

    /// In a legend or a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::ExposedAllreduce => "exposed all-reduce",
            Phase::Optimizer => "optimizer",
        }
    }

    /// What it is, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Phase::Forward => "forward and loss",
            Phase::Backward => "backward, without the time that communication blocked it",
            Phase::ExposedAllreduce => "all-reduce that backward did not hide",
            Phase::Optimizer => "weight update",
        }
    }
}

/// One value a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases<T>([T; Phase::COUNT]);

impl<T> Phases<T> {
    /// What `value` makes for each phase.
    pub fn from_fn(mut value: impl FnMut(Phase) -> T) -> Phases<T> {
        Phases(array::from_fn(|index| value(Phase::ALL[index])))
    }

    /// Each phase with its value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, &T)> {
        Phase::ALL.iter().copied().zip(&self.0)
    }

    /// Each phase with its value, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Phase, &mut T)> {
        Phase::ALL.iter().copied().zip(&mut self.0)
    }

    /// What `change` makes of each value.
    pub fn map<U>(self, mut change: impl FnMut(Phase, T) -> U) -> Phases<U> {
        let mut index = 0;
        Phases(self.0.map(|value| {
            index += 1;
            change(Phase::ALL[index - 1], value)
        }))
    }
}

impl<T> Phases<Option<T>> {
    /// All values, where none is missing.
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
    /// A map from the phases' keywords, to be flattened where it stands among other keys.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Phases<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Phases<T>, D::Error> {
        let mut values = BTreeMap::<Phase, T>::deserialize(deserializer)?;
        let missing = Phase::ALL.iter().find(|phase| !values.contains_key(phase)).map_or("", |phase| phase.keyword());
        Phases::from_fn(|phase| values.remove(&phase)).all().ok_or_else(|| de::Error::missing_field(missing))
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
        json_schema!({ "type": "object", "properties": properties, "required": Phase::KEYWORDS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_value_and_its_key() {
        let phases = Phases::from_fn(|phase| phase as u32);
        assert_eq!(phases[Phase::Optimizer], 3);
        assert_eq!(phases.map(|_, value| value + 1)[Phase::Forward], 1);
        let json = serde_json::to_string(&phases).expect("JSON");
        assert_eq!(json, r#"{"forward":0,"backward":1,"exposed_allreduce":2,"optimizer":3}"#);
        assert_eq!(serde_json::from_str::<Phases<u32>>(&json).expect("all"), phases);
        let missing = serde_json::from_str::<Phases<u32>>(r#"{"forward":0,"backward":1,"optimizer":3}"#);
        assert!(missing.expect_err("one is missing").to_string().contains("exposed_allreduce"));
        assert_eq!(Phases::from_fn(|phase| (phase != Phase::Backward).then_some(1)).all(), None);
        assert_eq!(Phases::from_fn(Some).all().expect("all")[Phase::Backward], Phase::Backward);
    }
}
