// Constants of the weight updates, as Rust passes them: see update.rs.

#pragma once

struct SgdStep {
  double learning_rate, momentum;
  bool is_nesterov;
  double weight_decay;
};

struct AdamStep {
  double learning_rate, betas[2], epsilon, weight_decay;
  bool is_decoupled;
};
