//! Bandwidths that MXNet published of its measure.py.

use ringmark_core::dimension::{GigabytesPerSecond, Model, Strategy};

/// Publication of the samples.
pub const SOURCE: &str = "MXNet, tools/bandwidth/README.md (2016); GPUs connected by PCIe";

/// One sample of the document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedExchange {
    /// Network whose gradients are exchanged.
    pub model: Model,
    /// Strategy that MXNet measured.
    pub strategy: Strategy,
    /// GPUs of the host.
    pub gpus: u32,
    /// Server processes.
    pub servers: u32,
    /// Optimizer inside the measured time, in measure.py's words.
    pub optimizer: &'static str,
    /// GB/s per GPU of each iteration, in order.
    pub rates: [GigabytesPerSecond; 5],
}

const fn sample(
    (model, strategy): (Model, Strategy),
    [gpus, servers]: [u32; 2],
    optimizer: &'static str,
    rates: [f64; 5],
) -> PublishedExchange {
    let [a, b, c, d, e] = rates;
    let rates = [
        GigabytesPerSecond(a),
        GigabytesPerSecond(b),
        GigabytesPerSecond(c),
        GigabytesPerSecond(d),
        GigabytesPerSecond(e),
    ];
    PublishedExchange { model, strategy, gpus, servers, optimizer, rates }
}

const RESNET: Model = Model::MxnetResnet200;

/// All samples, in the order of the document.
pub const SAMPLES: [PublishedExchange; 6] = [
    sample((RESNET, Strategy::Device), [2, 0], "None", [11.100222, 11.165508, 11.111735, 11.123614, 11.173694]),
    sample((RESNET, Strategy::Device), [8, 0], "None", [4.412429, 4.499330, 4.639322, 4.520586, 4.480169]),
    sample((RESNET, Strategy::Local), [8, 0], "None", [1.555964, 1.535856, 1.533222, 1.553325, 1.552567]),
    sample(
        (Model::MxnetInceptionV3, Strategy::Device),
        [8, 0],
        "sgd",
        [1.925424, 2.875700, 3.004967, 2.997555, 3.023220],
    ),
    sample((RESNET, Strategy::DistDeviceSync), [8, 1], "None", [1.528395, 1.489267, 1.552913, 1.507780, 1.582142]),
    sample((RESNET, Strategy::DistDeviceSync), [8, 4], "None", [1.935137, 1.778453, 1.759303, 1.798965, 1.968919]),
];
