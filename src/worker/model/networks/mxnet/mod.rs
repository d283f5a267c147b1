//! Networks as MXNet defined them in 2016, with its names: other networks than torchvision's of similar names.

pub mod alexnet;
pub mod inception_bn;
pub mod lenet;
pub mod mlp;
pub mod resnet;
