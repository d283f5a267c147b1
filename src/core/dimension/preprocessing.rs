//! How image files become pixels, each choice by its name. What each does is in the package `ringmark-input`.

use crate::keyword_enum;

keyword_enum!(
    /// Which library decodes JPEG files.
    DecoderChoice {
        /// turbojpeg where it is installed, else zune.
        Auto = "auto",
        /// zune-jpeg, which is part of the program.
        Zune = "zune",
        /// libjpeg-turbo, a library of the system.
        Turbojpeg = "turbojpeg",
    }
);

keyword_enum!(
    /// Whether a JPEG may be decoded at a fraction of its size where the crop needs no more pixels.
    Scaling {
        /// Every pixel is decoded.
        Off = "off",
        /// The smallest fraction that still has a pixel for each of the output.
        Allowed = "allowed",
    }
);

keyword_enum!(
    /// How pixels are interpolated where an image is resized.
    Interpolation {
        /// Of the 2 x 2 nearest pixels, however much smaller the output is: OpenCV's, and so MXNet's.
        Bilinear = "bilinear",
        /// Of all pixels that the output's pixel covers: Pillow's, and so torchvision's.
        Antialias = "antialias",
    }
);

keyword_enum!(
    /// Format of an image file, by its ending.
    ImageFormat {
        /// JPEG.
        Jpeg = ".jpg",
        /// PNG.
        Png = ".png",
    }
);

keyword_enum!(
    /// What is done to a training image before the network sees it.
    Augmentation {
        /// Resized so that the shorter edge fits, and the centre of it.
        None = "none",
        /// A crop at a random place.
        Crop = "crop",
        /// The centre, half of the time mirrored.
        Mirror = "mirror",
        /// torchvision's RandomResizedCrop, half of the time mirrored.
        Imagenet = "imagenet",
        /// MXNet's level 1: crop and mirror.
        Mxnet1 = "mxnet-1",
        /// MXNet's level 2: and hue, saturation and lightness changed.
        Mxnet2 = "mxnet-2",
        /// MXNet's level 3: and rotated, sheared and stretched.
        Mxnet3 = "mxnet-3",
    }
);

keyword_enum!(
    /// What is done where an image of a data set is none.
    BadImage {
        /// The run ends, and names it.
        Fail = "fail",
        /// Another image of the batch stands in its place, and it is counted.
        Skip = "skip",
    }
);
