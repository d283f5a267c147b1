//! Networks as MXNet defined them in 2016, with its names. They differ from torchvision's networks of similar names.

pub mod alexnet;
pub mod inception_bn;
pub mod lenet;
pub mod mlp;
pub mod resnet;
