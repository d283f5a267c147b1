//! Records that are one JSON document: the fields that all of them have, the writer and the parser.

/// Defines the record of a benchmark from its own fields, in the order of the file. `setup`, `results` and `end` are
/// empty in a new record. The type has a method `check_results`, which checks the results against the other fields.
macro_rules! document_record {
    (
        $(#[$meta:meta])*
        $name:ident, kind: $kind:literal, schema: $schema:literal, title: $title:literal,
        iterations: $iterations:expr $(, is_miss: $is_miss:expr)? => {
            $(label { $($(#[$label_meta:meta])* $label:ident: $label_type:ty),+ $(,)? })?
            config: $config:ty,
            setup { $($(#[$setup_meta:meta])* $setup:ident: $setup_type:ty),* $(,)? }
            $(#[$ranks_meta:meta])* ranks,
            results { $($(#[$result_meta:meta])* $result:ident: $result_type:ty),+ $(,)? }
            $(#[$host_use_meta:meta])* host_use,
            $(#[$rank_use_meta:meta])* rank_use,
            $(#[$warnings_meta:meta])* warnings,
            end { $($(#[$end_meta:meta])* $end:ident: $end_type:ty),* $(,)? }
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        pub struct $name {
            #[doc = concat!("Always `", $kind, "`.")]
            pub kind: String,
            /// Version of the format.
            pub schema: u32,
            $($($(#[$label_meta])* pub $label: $label_type,)+)?
            /// Start, seconds since 1970 UTC.
            pub started: $crate::dimension::Seconds,
            /// Configuration of the run.
            pub config: $config,
            $($(#[$setup_meta])* pub $setup: $setup_type,)*
            /// Environment of rank 0.
            pub environment: $crate::host::Environment,
            $(#[$ranks_meta])*
            pub ranks: Vec<$crate::host::RankPlace>,
            $($(#[$result_meta])* pub $result: $result_type,)+
            $(#[$host_use_meta])*
            pub host_use: Vec<$crate::host::HostUse>,
            $(#[$rank_use_meta])*
            pub rank_use: Vec<$crate::host::RankUse>,
            $(#[$warnings_meta])*
            pub warnings: Vec<$crate::benchmark::warning::Warning>,
            /// Reason the run is not valid; `None` for a valid one.
            pub failure: Option<String>,
            $($(#[$end_meta])* pub $end: $end_type,)*
        }

        impl $name {
            /// Creates the record of a run without measurements.
            pub fn new(
                $($crate::benchmark::RunLabel { $($label),+ }: $crate::benchmark::RunLabel,)?
                started: $crate::dimension::Seconds,
                config: $config,
                environment: $crate::host::Environment,
                ranks: Vec<$crate::host::RankPlace>,
            ) -> $name {
                $name {
                    kind: $kind.to_owned(),
                    schema: $schema,
                    $($($label,)+)?
                    started,
                    config,
                    $($setup: Default::default(),)*
                    environment,
                    ranks,
                    $($result: Default::default(),)+
                    host_use: Vec::new(),
                    rank_use: Vec::new(),
                    warnings: Vec::new(),
                    failure: None,
                    $($end: Default::default(),)*
                }
            }

            /// Writes the document and a newline.
            pub fn write(&self, output: impl ::std::io::Write) -> ::anyhow::Result<()> {
                $crate::file::schema::write_document(self, output)
            }
        }

        impl $crate::benchmark::Record for $name {
            const KIND: &'static str = $kind;

            fn read(input: impl ::std::io::BufRead) -> ::anyhow::Result<$name> {
                let record: $name = $crate::file::schema::read_document(input, $kind, $schema, $title)?;
                record.check_results()?;
                Ok(record)
            }

            fn head(&self) -> $crate::benchmark::RecordHead<'_> {
                let $name { started, environment, ranks, .. } = self;
                $crate::benchmark::RecordHead { started: *started, environment, ranks }
            }

            fn failure(&self) -> Option<String> {
                self.failure.clone()
            }

            fn observed(&self) -> Option<$crate::host::Observed<'_>> {
                let iterations: fn(&$name) -> u32 = $iterations;
                let $name { ranks, host_use, rank_use, environment, .. } = self;
                Some($crate::host::Observed::new(ranks, host_use, rank_use, iterations(self), environment.load_before.as_ref()))
            }

            fn warnings(&self) -> &[$crate::benchmark::warning::Warning] {
                &self.warnings
            }

            $(fn is_miss(&self) -> bool {
                let is_miss: fn(&$name) -> bool = $is_miss;
                is_miss(self)
            })?
        }
    };
}

pub(super) use document_record;
