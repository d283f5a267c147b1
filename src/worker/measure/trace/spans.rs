//! Conversion of the marks of traced iterations to spans in lanes, in the host's clock.

use std::collections::BTreeMap;

use anyhow::Result;
use ringmark_core::trace::{Direction, GradientReady, Lane, LayerPass, Span};

use crate::measure::mark::Mark;
use crate::measure::trace::clock::SpanClock;
use crate::measure::trace::recorder::{MarkedLayer, MarkedNode, MarkedPhases, MarkedSpan, RecordedMarks};

/// Number of all nodes that accumulate a finished gradient.
const LEAF: u64 = u64::MAX;

/// Converts the marks of this rank. The device must have passed all of them.
pub fn convert(marks: RecordedMarks, clock: &SpanClock) -> Result<(Vec<Span>, Vec<GradientReady>)> {
    let mut spans = Vec::new();
    for phases in &marks.phases {
        spans.extend(steps(phases, clock)?);
    }
    for layer in &marks.layers {
        let span = span(Lane::Layers, &layer.name, layer.iteration, [&layer.begin, &layer.end], clock)?;
        spans.push(Span { layer: Some(forward(layer)), ..span });
    }
    let layers = Layers::new(&marks.layers);
    for node in &marks.nodes {
        spans.extend(layers.backward(node, clock)?);
    }
    for MarkedSpan { lane, name, iteration, bucket, begin, end } in &marks.spans {
        spans.push(Span { bucket: *bucket, ..span(*lane, name, *iteration, [begin, end], clock)? });
    }
    let mut ends: BTreeMap<(u32, u32), i64> = BTreeMap::new();
    for span in &spans {
        if let Some(bucket) = span.bucket {
            let end = ends.entry((span.iteration, bucket)).or_insert(i64::MIN);
            *end = span.end_ns().max(*end);
        }
    }
    for (iteration, bucket, filled) in &marks.filled {
        let begin = clock.time_of(filled)?;
        let end = ends.get(&(*iteration, *bucket)).map_or(begin, |end| begin.max(*end));
        spans.push(Span {
            lane: Lane::Bucket(*bucket),
            name: format!("bucket {bucket}"),
            iteration: *iteration,
            begin_ns: begin,
            length_ns: end - begin,
            layer: None,
            bucket: Some(*bucket),
        });
    }
    let ready = |(iteration, array, mark): &(u32, u32, Mark)| {
        Ok(GradientReady { iteration: *iteration, array: *array, at_ns: clock.time_of(mark)? })
    };
    Ok((spans, marks.gradients.iter().map(ready).collect::<Result<_>>()?))
}

fn span(lane: Lane, name: &str, iteration: u32, [begin, end]: [&Mark; 2], clock: &SpanClock) -> Result<Span> {
    let begin_ns = clock.time_of(begin)?;
    let length_ns = (clock.time_of(end)? - begin_ns).max(0);
    Ok(Span { lane, name: name.to_owned(), iteration, begin_ns, length_ns, layer: None, bucket: None })
}

/// Returns a span for each phase; it starts at the end of the previous one.
fn steps(MarkedPhases { iteration, start, ends }: &MarkedPhases, clock: &SpanClock) -> Result<Vec<Span>> {
    let (mut begin, mut spans) = (start, Vec::new());
    for (phase, end) in ends {
        spans.push(span(Lane::Step, phase.description(), *iteration, [begin, end], clock)?);
        begin = end;
    }
    Ok(spans)
}

fn forward(layer: &MarkedLayer) -> LayerPass {
    let MarkedLayer { number, kind, multiply_adds, forward_bytes: bytes, .. } = layer;
    LayerPass {
        layer: *number,
        kind: *kind,
        direction: Direction::Forward,
        multiply_adds: *multiply_adds,
        bytes: *bytes,
    }
}

struct Layers<'a> {
    /// Key: iteration and first node.
    by_node: BTreeMap<(u32, u64), &'a MarkedLayer>,
}

impl<'a> Layers<'a> {
    fn new(layers: &'a [MarkedLayer]) -> Layers<'a> {
        let with_nodes = layers.iter().filter(|layer| !layer.nodes.is_empty());
        Layers { by_node: with_nodes.map(|layer| ((layer.iteration, layer.nodes.start), layer)).collect() }
    }

    /// Returns the span of a node in a layer or between layers; `None` at the leaves, where the exchange records its
    /// own work.
    fn backward(&self, node: &MarkedNode, clock: &SpanClock) -> Result<Option<Span>> {
        let MarkedNode { iteration, number, begin, end } = node;
        if *number == LEAF {
            return Ok(None);
        }
        let before = self.by_node.range((*iteration, 0)..=(*iteration, *number)).next_back();
        let layer = before.map(|(_, layer)| *layer).filter(|layer| layer.nodes.contains(number));
        let name = layer.map_or("between layers", |layer| layer.name.as_str());
        let span = span(Lane::Layers, name, *iteration, [begin, end], clock)?;
        // The gradient of the weight and that of the input each take as much work as the output.
        let pass = |layer: &MarkedLayer| LayerPass {
            direction: Direction::Backward,
            multiply_adds: layer.multiply_adds * if layer.has_input_gradient { 2 } else { 1 },
            bytes: layer.backward_bytes,
            ..forward(layer)
        };
        Ok(Some(Span { layer: layer.map(pass), ..span }))
    }
}
