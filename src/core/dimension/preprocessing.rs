//! Choices for decoding and preprocessing image files, by name. The package `ringmark-input` implements them.

use crate::keyword_enum;

keyword_enum!(
    /// Library that decodes JPEG files.
    DecoderChoice {
        /// turbojpeg if it is installed, otherwise zune.
        Auto = "auto",
        /// zune-jpeg, which is built in.
        Zune = "zune",
        /// libjpeg-turbo, a system library.
        Turbojpeg = "turbojpeg",
    }
);

keyword_enum!(
    /// Decoding of a JPEG at a fraction of its size if the crop needs no more pixels.
    Scaling {
        /// Full size.
        Off = "off",
        /// The smallest fraction that still has at least as many pixels as the output.
        Allowed = "allowed",
    }
);

keyword_enum!(
    /// Interpolation of resized images.
    Interpolation {
        /// Bilinear over the 2 x 2 nearest pixels regardless of the output size, as in OpenCV and therefore MXNet.
        Bilinear = "bilinear",
        /// Average over all input pixels that an output pixel covers, as in Pillow and therefore torchvision.
        Antialias = "antialias",
    }
);

keyword_enum!(
    /// Format of an image file, by file extension.
    ImageFormat {
        /// JPEG.
        Jpeg = ".jpg",
        /// PNG.
        Png = ".png",
    }
);

keyword_enum!(
    /// Augmentation of a training image.
    #[derive(Default)]
    Augmentation {
        /// Resize the shorter edge and crop the center.
        #[default]
        None = "none",
        /// Crop at a random position.
        Crop = "crop",
        /// Crop the center, mirrored with probability 0.5.
        Mirror = "mirror",
        /// torchvision's RandomResizedCrop, mirrored with probability 0.5.
        Imagenet = "imagenet",
        /// MXNet's level 1: crop and mirror.
        Mxnet1 = "mxnet-1",
        /// MXNet's level 2: level 1 and random hue, saturation and lightness.
        Mxnet2 = "mxnet-2",
        /// MXNet's level 3: level 2 and random rotation, shear and aspect ratio.
        Mxnet3 = "mxnet-3",
    }
);

keyword_enum!(
    /// Handling of an image in a data set that cannot be decoded.
    BadImage {
        /// The run fails with an error that names the image.
        Fail = "fail",
        /// Another image of the batch replaces it, and it is counted.
        Skip = "skip",
    }
);
