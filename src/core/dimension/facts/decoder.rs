//! Shapes of decoder language models, with their parameters and arithmetic, known without building them.

use crate::dimension::Bytes;
use crate::dimension::facts::rank_memory::RankMemory;
use crate::keyword_enum;

/// Architecture of a decoder; its parameters have the names of Hugging Face's `transformers`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DecoderFamily {
    /// GPT-2: learned positions, layer normalization, tanh GELU, biases.
    Gpt2,
    /// Llama: rotary positions, RMS normalization, SwiGLU, no biases.
    Llama(Rotary),
}

/// Frequencies of rotary positions, with the scaling of Llama 3.1: long wavelengths are multiplied, short ones are
/// kept, and frequencies between them are interpolated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotary {
    /// Base of the geometric series of frequencies.
    pub theta: f64,
    /// Factor of long wavelengths.
    pub factor: f64,
    /// Cycles in the original context up to which a frequency is divided by `factor`.
    pub low_factor: f64,
    /// Cycles in the original context from which a frequency is kept.
    pub high_factor: f64,
    /// Context before the scaling, in tokens.
    pub original_context: f64,
}

impl Rotary {
    /// Llama 3's frequencies, with long wavelengths multiplied by `factor`.
    const fn llama3(factor: f64) -> Rotary {
        Rotary { theta: 500_000.0, factor, low_factor: 1.0, high_factor: 4.0, original_context: 8192.0 }
    }

    /// Returns the angle per position of each pair of features in a head of `head_size` features.
    pub fn frequencies(&self, head_size: u32) -> Vec<f64> {
        let Rotary { factor, low_factor, high_factor, original_context, .. } = *self;
        let scaled = |frequency: f64| {
            let cycles = original_context * frequency / std::f64::consts::TAU;
            let kept = ((cycles - low_factor) / (high_factor - low_factor)).clamp(0.0, 1.0);
            kept * frequency + (1.0 - kept) * frequency / factor
        };
        let frequency = |pair: u32| self.theta.powf(-2.0 * f64::from(pair) / f64::from(head_size));
        (0..head_size / 2).map(|pair| scaled(frequency(pair))).collect()
    }
}

keyword_enum!(
    /// Formula for the operations of training a token, `6 N + 12 L H Q T` with L layers of H heads with Q features and
    /// sequences of T tokens. The formulas differ in N.
    MfuFormula {
        /// PaLM (Chowdhery et al., 2022, appendix B) and nanoGPT: N is all parameters but learned positions.
        Palm = "palm",
        /// torchtitan: N is all parameters but the token embedding, also if it is tied to the output layer.
        Torchtitan = "torchtitan",
        /// Megatron-LM, `12 L h^2 (1 + g/a + f/h + s/h + V/(2 L h))` with f three halves as large for SwiGLU: N is the
        /// weights of matrix products, which include the output layer.
        Megatron = "megatron",
    }
);

/// A decoder language model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecoderShape {
    /// Name on the command line and in records.
    pub keyword: &'static str,
    /// Name for titles.
    pub title: &'static str,
    /// Name of the public model of this shape.
    pub source_name: &'static str,
    /// Architecture and names of the parameters.
    pub family: DecoderFamily,
    /// Number of different tokens.
    pub vocabulary: u32,
    /// Largest number of tokens in a sequence.
    pub context: u32,
    /// Tokens of a sequence by default.
    pub sequence_length: u32,
    /// Number of transformer blocks.
    pub layers: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values, each shared by `heads / key_value_heads` heads of queries.
    pub key_value_heads: u32,
    /// Width of the hidden layer of each perceptron.
    pub mlp_width: u32,
    /// True if the output layer uses the weight of the token embedding.
    pub has_tied_head: bool,
}

/// Defines the constant of each decoder. A factor after `Llama` is that of long wavelengths.
macro_rules! decoders {
    ($($(#[$doc:meta])* $name:ident $keyword:literal $title:literal $source_name:literal
        $family:ident $(($factor:literal))? $vocabulary:literal $context:literal $sequence_length:literal
        $layers:literal $width:literal $heads:literal $key_value_heads:literal $mlp_width:literal $has_tied_head:literal
    )+) => {
        impl DecoderShape {
            $($(#[$doc])*
            pub const $name: DecoderShape = DecoderShape {
                keyword: $keyword,
                title: $title,
                source_name: $source_name,
                family: DecoderFamily::$family $((Rotary::llama3($factor)))?,
                vocabulary: $vocabulary,
                context: $context,
                sequence_length: $sequence_length,
                layers: $layers,
                width: $width,
                heads: $heads,
                key_value_heads: $key_value_heads,
                mlp_width: $mlp_width,
                has_tied_head: $has_tied_head,
            };)+
        }
    };
}

decoders! {
    // name, keyword, title, name in the source, family, vocabulary, context, default tokens, layers, width, heads,
    // heads of keys and values, width of the perceptron, tied head
    /// OpenAI's smallest GPT-2.
    GPT2_124M  "gpt2-124m"  "GPT-2 124M"   "gpt2"         Gpt2         50_257    1024 1024 12  768 12 12   3072  true
    /// OpenAI's GPT-2 medium.
    GPT2_355M  "gpt2-355m"  "GPT-2 355M"   "gpt2-medium"  Gpt2         50_257    1024 1024 24 1024 16 16   4096  true
    /// Meta's Llama 3.2 1B.
    LLAMA_1B   "llama-1b"   "Llama 3.2 1B" "Llama-3.2-1B" Llama(32.0) 128_256 131_072 2048 16 2048 32  8   8192  true
    /// Meta's Llama 3.1 8B.
    LLAMA_8B   "llama-8b"   "Llama 3.1 8B" "Llama-3.1-8B" Llama(8.0)  128_256 131_072 2048 32 4096 32  8 14_336 false
    /// A small GPT-2 over bytes, for tests.
    GPT2_TINY  "gpt2-tiny"  "GPT-2 tiny"   "gpt2-tiny"    Gpt2            256     256   64  2   64  4  4    256  true
    /// A small Llama over bytes, for tests.
    LLAMA_TINY "llama-tiny" "Llama tiny"   "llama-tiny"   Llama(8.0)      256     256   64  2   64  4  2    192 false
}

impl DecoderShape {
    /// Any language model of another program: nothing is known about it but the length of its sequences.
    pub const OTHER: DecoderShape = DecoderShape {
        keyword: "tokens",
        title: "language model",
        source_name: "tokens",
        vocabulary: 0,
        context: 131_072,
        layers: 0,
        width: 0,
        heads: 1,
        key_value_heads: 1,
        mlp_width: 0,
        ..DecoderShape::GPT2_124M
    };

    /// Returns the features of a head.
    pub const fn head_size(&self) -> u32 {
        self.width / self.heads
    }

    /// Returns the number of trained parameters; a tied weight counts once.
    pub const fn parameters(&self) -> u64 {
        self.lookup_parameters() + self.product_parameters() + self.vectors().1
    }

    /// Returns the number of parameter arrays.
    pub const fn arrays(&self) -> u32 {
        let (lookups, products_per_layer) = match self.family {
            DecoderFamily::Gpt2 => (2, 4),
            DecoderFamily::Llama(_) => (1, 7),
        };
        lookups + !self.has_tied_head as u32 + products_per_layer * self.layers + self.vectors().0
    }

    /// Returns the parameters that are only looked up: positions, and the token embedding unless it is tied.
    pub const fn lookup_parameters(&self) -> u64 {
        self.positions() + if self.has_tied_head { 0 } else { self.embedding() }
    }

    /// Returns the weights of matrix products: each is multiplied once per token in a forward pass.
    pub const fn product_parameters(&self) -> u64 {
        let (width, mlp_width) = (self.width as u64, self.mlp_width as u64);
        let keys_and_values = 2 * (self.key_value_heads * self.head_size()) as u64;
        let attention = width * (2 * width + keys_and_values);
        let perceptron = match self.family {
            DecoderFamily::Gpt2 => 2 * width * mlp_width,
            DecoderFamily::Llama(_) => 3 * width * mlp_width,
        };
        self.embedding() + self.layers as u64 * (attention + perceptron)
    }

    /// Returns the weights of matrix products in blocks: all but embeddings, the head and vectors.
    pub const fn block_parameters(&self) -> u64 {
        self.product_parameters() - self.embedding()
    }

    /// Returns the multiply-accumulates of the forward pass of a sequence of `tokens`, in 1e9: those of matrix products
    /// and of attention, as [`MfuFormula::Megatron`] counts them. A step takes six operations per multiply-accumulate.
    pub const fn gmacs(&self, tokens: u32) -> f64 {
        let of_token = self.training_operations(MfuFormula::Megatron, tokens) / 6;
        (tokens as u64 * of_token) as f64 / 1e9
    }

    /// Returns the floating-point operations of a training step per token by this formula, in sequences of `tokens`. No
    /// formula halves attention for the causal mask.
    pub const fn training_operations(&self, formula: MfuFormula, tokens: u32) -> u64 {
        let parameters = match formula {
            MfuFormula::Palm => self.parameters() - self.positions(),
            MfuFormula::Torchtitan => self.parameters() - self.embedding(),
            MfuFormula::Megatron => self.product_parameters(),
        };
        let attention = self.layers as u64 * (self.heads * self.head_size()) as u64 * tokens as u64;
        6 * parameters + 12 * attention
    }

    /// Returns the operations per token that `--recompute block` adds to a step: a second forward pass of the blocks,
    /// counted as [`MfuFormula::Megatron`] counts the first.
    pub const fn recomputed_operations(&self, tokens: u32) -> u64 {
        self.training_operations(MfuFormula::Megatron, tokens) / 3 - 2 * self.embedding()
    }

    /// Returns the memory of a rank that trains on the CPU: weights, gradients, momentum and buckets take 20 bytes per
    /// parameter at most; of each token, the activations that backward reads; two chunks of logits. GPT-2 124M with 8
    /// sequences of 128 tokens took 3.48 GB, and the bound is 3.83.
    pub const fn training_memory(&self) -> RankMemory {
        let of_token = 4 * self.layers as u64 * self.activations_of_block();
        self.memory(20, of_token * self.sequence_length as u64)
    }

    /// Returns the values of a token that backward reads in a block.
    const fn activations_of_block(&self) -> u64 {
        let perceptron = match self.family {
            DecoderFamily::Gpt2 => 2 * self.mlp_width as u64,
            DecoderFamily::Llama(_) => 4 * self.mlp_width as u64,
        };
        9 * self.width as u64 + perceptron
    }

    /// Returns the share of the activations that remains with `--recompute block`: the input of every block, and all of one
    /// block.
    pub const fn recomputed_share(&self) -> f64 {
        let kept = self.layers as u64 * self.width as u64 + self.activations_of_block();
        kept as f64 / (self.layers as u64 * self.activations_of_block()) as f64
    }

    /// Returns the memory of a rank that scores on the CPU: it stores the activations of one layer and two chunks of
    /// logits.
    pub const fn scoring_memory(&self) -> RankMemory {
        let of_token = 4 * (10 * self.width as u64 + 4 * self.mlp_width as u64);
        self.memory(8, of_token * self.sequence_length as u64)
    }

    const fn memory(&self, of_parameter: u64, of_sample: u64) -> RankMemory {
        RankMemory {
            fixed: Bytes(of_parameter * self.parameters() + RankMemory::PROGRAM.0),
            of_sample: Bytes(of_sample),
            // Autocast keeps some activations in fp32.
            of_half_sample: Bytes(of_sample * 3 / 4),
        }
    }

    /// Returns the elements of learned positions.
    const fn positions(&self) -> u64 {
        match self.family {
            DecoderFamily::Gpt2 => self.context as u64 * self.width as u64,
            DecoderFamily::Llama(_) => 0,
        }
    }

    const fn embedding(&self) -> u64 {
        self.vocabulary as u64 * self.width as u64
    }

    /// Returns the number of vectors, which are biases and parameters of normalizations, and of their elements.
    const fn vectors(&self) -> (u32, u64) {
        let (width, mlp_width, layers) = (self.width as u64, self.mlp_width as u64, self.layers);
        match self.family {
            DecoderFamily::Gpt2 => (2 + 8 * layers, 2 * width + layers as u64 * (9 * width + mlp_width)),
            DecoderFamily::Llama(_) => (1 + 2 * layers, width + 2 * layers as u64 * width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_have_the_published_parameters() {
        for (shape, parameters) in [
            (DecoderShape::GPT2_124M, 124_439_808),
            (DecoderShape::GPT2_355M, 354_823_168),
            (DecoderShape::LLAMA_1B, 1_235_814_400),
            (DecoderShape::LLAMA_8B, 8_030_261_248),
        ] {
            assert_eq!(shape.parameters(), parameters, "{}", shape.keyword);
        }
    }

    #[test]
    fn operations_per_token_match_published_figures() {
        // nanoGPT's estimate_mfu: N is 123,653,376 without positions.
        assert_eq!(DecoderShape::GPT2_124M.training_operations(MfuFormula::Palm, 1024), 855_166_464);
        // torchtitan's figure for its 8B at 8,192 tokens.
        let torchtitan = DecoderShape::LLAMA_8B.training_operations(MfuFormula::Torchtitan, 8192) as f64;
        assert!((torchtitan / 57.91e9 - 1.0).abs() < 1e-4, "{torchtitan}");
        // llm-foundry's table, 8 H100 at 989.5 TFLOP/s: 177 sequences/s of 2,048 tokens with its 1B of 24 layers and
        // 1,315,950,592 parameters have an MFU of 41.8 %.
        let foundry = DecoderShape {
            vocabulary: 50_368,
            context: 2048,
            layers: 24,
            width: 2048,
            heads: 16,
            key_value_heads: 16,
            mlp_width: 8192,
            ..DecoderShape::GPT2_124M
        };
        assert_eq!(foundry.parameters(), 1_315_950_592);
        // llm-foundry also counts the positions.
        let operations = foundry.training_operations(MfuFormula::Palm, 2048) + 6 * foundry.positions();
        assert!((177.0 * 2048.0 * operations as f64 / (8.0 * 989.5e12) - 0.418).abs() < 2e-3);
        // Megatron-LM's formula with its own letters.
        let (h, f, g, a, s, v, l) = (4096.0, 14_336.0, 8.0, 32.0, 8192.0, 128_256.0, 32.0);
        let megatron: f64 = 12.0 * l * h * h * (1.0 + g / a + f / h * 1.5 + s / h + v / (2.0 * l * h));
        let own = DecoderShape::LLAMA_8B.training_operations(MfuFormula::Megatron, 8192) as f64;
        assert!((own / megatron - 1.0).abs() < 1e-12, "{own}, {megatron}");
        // The tables count the matrix products and attention, which is Megatron-LM's formula.
        assert!((own * 8192.0 / 6e9 / DecoderShape::LLAMA_8B.gmacs(8192) - 1.0).abs() < 1e-12);
        // The formula of Narayanan et al. (2021, section 5.1), in which all blocks run forward twice.
        let (h, s, v, l) = (768.0, 1024.0, 50_257.0, 12.0);
        let hardware: f64 = 96.0 * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h));
        let gpt2 = DecoderShape::GPT2_124M;
        let own = gpt2.training_operations(MfuFormula::Megatron, 1024) + gpt2.recomputed_operations(1024);
        assert!((own as f64 / hardware - 1.0).abs() < 1e-12, "{own}, {hardware}");
        let shape = DecoderShape::LLAMA_8B;
        // The embedding, and 65 normalizations.
        assert_eq!(shape.parameters() - shape.product_parameters(), 128_256 * 4096 + 65 * 4096);
    }

    #[test]
    fn rotary_frequencies_are_scaled_by_wavelength() {
        let DecoderFamily::Llama(rotary) = DecoderShape::LLAMA_8B.family else { panic!("rotary") };
        let frequencies = rotary.frequencies(128);
        let unscaled = |pair: usize| 500_000.0_f64.powf(-(pair as f64) / 64.0);
        assert_eq!((frequencies.len(), frequencies[0], frequencies[20]), (64, 1.0, unscaled(20)));
        assert!((frequencies[63] / (unscaled(63) / 8.0) - 1.0).abs() < 1e-12);
        // Wavelength of pair 32: 4443 tokens, 1.84 cycles of 8192, so 0.2812 of the frequency is kept.
        let kept = 0.281_282_6;
        assert!((frequencies[32] / (unscaled(32) * (kept + (1.0 - kept) / 8.0)) - 1.0).abs() < 1e-5);
    }
}
