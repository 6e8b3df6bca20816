// lstm as a build with MPS dispatches it: one operator for all layers, whose backward takes the workspaces it returns. Their
// shapes are those of a real build; what they hold is the simulated device's own:
//   z_state         (layers, T, N, directions * 4 H)  the gates i, f, g, o of each step, after their functions
//   cell_state_fwd  (layers, T, N, directions * H)    the cell after each step
//   layer_outputs   (layers - 1, T, N, directions * H), or (1) for one layer: the inputs of all layers but the first
// T steps, N sequences, H hidden units. Formulas: those in the documentation of torch.nn.LSTM, and their derivatives.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/_lstm_mps.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "fallback.h"

namespace mps_simulator {

using Tensors = std::vector<at::Tensor>;

struct LstmOptions {
  bool has_biases, bidirectional, batch_first;
  int64_t layers;
  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t weights() const { return has_biases ? 4 : 2; }
};

inline at::Tensor time_first(const at::Tensor& tensor, const LstmOptions& options) {
  return options.batch_first ? tensor.transpose(0, 1) : tensor;
}

// The step that follows `step` in time, seen from a direction's end: -1 where there is none.
inline int64_t step_before(int64_t step, int64_t steps, bool reverse) {
  if (reverse) return step + 1 < steps ? step + 1 : -1;
  return step - 1;
}

// Dropped elements are -0 and kept ones are never: the backward finds the mask in the values.
inline at::Tensor lstm_dropout(const at::Tensor& tensor, double probability, const at::Generator& generator) {
  const auto kept = at::empty_like(tensor).bernoulli_(1 - probability, generator).to(at::kBool);
  return at::where(kept, tensor.div(1 - probability) + 0.0, -0.0).to(tensor.scalar_type());
}

inline at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& dropped, double probability) {
  const auto removed = dropped.eq(0).logical_and(dropped.signbit());
  return at::where(removed, 0.0, grad.div(1 - probability)).to(grad.scalar_type());
}

// One direction of one layer: x (T, N, I) -> outputs (T, N, H), gates (T, N, 4 H), cells (T, N, H).
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_direction(const at::Tensor& x, at::Tensor hidden, at::Tensor cell,
                                                                     const at::Tensor* weights, bool has_biases,
                                                                     bool reverse) {
  const auto steps = x.size(0);
  const auto from_input = at::linear(x, weights[0], has_biases ? weights[2] : at::Tensor());
  Tensors outputs(steps), gates(steps), cells(steps);
  for (int64_t i = 0; i < steps; ++i) {
    const auto step = reverse ? steps - 1 - i : i;
    const auto sums = from_input[step] + at::linear(hidden, weights[1], has_biases ? weights[3] : at::Tensor());
    const auto parts = sums.chunk(4, -1);
    const auto in = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]), fresh = at::tanh(parts[2]);
    const auto out = at::sigmoid(parts[3]);
    cells[step] = cell = forget * cell + in * fresh;
    outputs[step] = hidden = out * at::tanh(cell);
    gates[step] = at::cat({in, forget, fresh, out}, -1);
  }
  return {at::stack(outputs), at::stack(gates), at::stack(cells)};
}

struct DirectionGradients {
  at::Tensor input, hidden, cell;
  Tensors weights;
};

inline DirectionGradients lstm_direction_backward(const at::Tensor& grad_outputs, at::Tensor grad_hidden, at::Tensor grad_cell,
                                                  const at::Tensor& x, const at::Tensor& gates, const at::Tensor& cells,
                                                  const at::Tensor& hidden, const at::Tensor& cell,
                                                  const at::Tensor* weights, bool has_biases, bool reverse) {
  const auto steps = x.size(0);
  const auto outputs = gates.chunk(4, -1)[3] * at::tanh(cells);
  Tensors grad_sums(steps), hidden_before(steps);
  for (int64_t i = steps - 1; i >= 0; --i) {
    const auto step = reverse ? steps - 1 - i : i;
    const auto before = step_before(step, steps, reverse);
    const auto cell_before = before < 0 ? cell : cells[before];
    const auto parts = gates[step].chunk(4, -1);
    const auto &in = parts[0], &forget = parts[1], &fresh = parts[2], &out = parts[3];
    const auto squashed = at::tanh(cells[step]);
    const auto grad_output = grad_outputs[step] + grad_hidden;
    grad_cell = grad_cell + grad_output * out * (1 - squashed * squashed);
    grad_sums[step] =
        at::cat({grad_cell * fresh * in * (1 - in), grad_cell * cell_before * forget * (1 - forget),
                 grad_cell * in * (1 - fresh * fresh), grad_output * squashed * out * (1 - out)}, -1);
    grad_hidden = at::matmul(grad_sums[step], weights[1]);
    grad_cell = grad_cell * forget;
    hidden_before[step] = before < 0 ? hidden : outputs[before];
  }
  const auto sums = at::stack(grad_sums), rows = sums.flatten(0, 1).t();
  Tensors grads{at::matmul(rows, x.flatten(0, 1)), at::matmul(rows, at::stack(hidden_before).flatten(0, 1))};
  if (has_biases) grads.insert(grads.end(), 2, rows.sum(1));
  if (has_biases) grads[3] = grads[2].clone();
  return {at::matmul(sums, weights[0]), grad_hidden, grad_cell, grads};
}

inline void check_lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params, const LstmOptions& options) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  TORCH_CHECK(hx[0].size(2) == hx[1].size(2), "LSTM with projections is not currently supported with MPS.");
  const auto expected = options.layers * options.directions() * options.weights();
  TORCH_CHECK(int64_t(params.size()) == expected, "_lstm_mps: ", expected, " weights expected, got ", params.size());
  TORCH_CHECK(input.dim() == 3, "_lstm_mps: an input of 3 dimensions expected, got ", input.dim());
  TORCH_CHECK(time_first(input, options).size(0) > 0, "Expected sequence length to be larger than 0 in RNN");
}

inline Tensors aliases_of(Aliases& aliases, at::TensorList tensors) {
  Tensors on_cpu;
  for (const auto& tensor : tensors) on_cpu.push_back(aliases.to_cpu(tensor));
  return on_cpu;
}

inline void refuse_cpu_tensors(const Aliases& aliases) {
  TORCH_CHECK(!aliases.on_cpu,
              "lstm: Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!");
}

using LstmResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

inline LstmResults lstm_forward(const at::Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases,
                                int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const LstmOptions options{has_biases, bidirectional, batch_first, layers};
  check_lstm(input, hx, params, options);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Aliases aliases;
  auto x = time_first(aliases.to_cpu(input), options);
  const auto states = aliases_of(aliases, hx), weights = aliases_of(aliases, params);
  refuse_cpu_tensors(aliases);
  const bool drops = layers > 1 && train && dropout > 0;
  const auto generator = drops ? generator_for_operator(default_generator()) : at::Generator();
  Tensors hidden, cell, gates, cells, between;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (layer > 0 && drops) x = lstm_dropout(x, dropout, generator);
    if (layer > 0) between.push_back(x);
    Tensors outputs, layer_gates, layer_cells;
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const auto index = layer * options.directions() + direction;
      const auto [out, gate, after] = lstm_direction(x, states[0][index], states[1][index],
                                                     &weights[index * options.weights()], has_biases, direction == 1);
      const auto last = direction == 1 ? 0 : out.size(0) - 1;
      hidden.push_back(out[last]), cell.push_back(after[last]);
      outputs.push_back(out), layer_gates.push_back(gate), layer_cells.push_back(after);
    }
    x = at::cat(outputs, -1);
    gates.push_back(at::cat(layer_gates, -1)), cells.push_back(at::cat(layer_cells, -1));
  }
  const auto layer_outputs = layers > 1 ? at::stack(between) : at::zeros({1}, x.options());
  return {aliases.to_device(time_first(x, options).contiguous()), aliases.to_device(at::stack(hidden)),
          aliases.to_device(at::stack(cell)),                     aliases.to_device(at::stack(gates)),
          aliases.to_device(at::stack(cells)),                    aliases.to_device(layer_outputs)};
}

inline at::Tensor given_or_zeros(Aliases& aliases, const std::optional<at::Tensor>& grad, const at::Tensor& like) {
  return grad && grad->defined() ? aliases.to_cpu(*grad) : at::zeros_like(like);
}

inline std::tuple<at::Tensor, Tensors, Tensors> lstm_backward(
    const std::optional<at::Tensor>& grad_y, const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy, const at::Tensor& z_state, const at::Tensor& cell_state_fwd,
    const at::Tensor& input, const at::Tensor& layer_outputs, at::TensorList hx, at::TensorList params, bool has_biases,
    int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  const LstmOptions options{has_biases, bidirectional, batch_first, layers};
  check_lstm(input, hx, params, options);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  Aliases aliases;
  const auto x = time_first(aliases.to_cpu(input), options), between = aliases.to_cpu(layer_outputs);
  const auto states = aliases_of(aliases, hx), weights = aliases_of(aliases, params);
  const auto gates = aliases.to_cpu(z_state), cells = aliases.to_cpu(cell_state_fwd);
  const auto like = time_first(cells[layers - 1], options);
  auto grad = time_first(given_or_zeros(aliases, grad_y, like), options);
  const auto grad_hidden = given_or_zeros(aliases, grad_hy, states[0]);
  const auto grad_cell = given_or_zeros(aliases, grad_cy, states[1]);
  refuse_cpu_tensors(aliases);
  Tensors grad_weights(params.size()), grad_h(states[0].size(0)), grad_c(states[0].size(0));
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    const auto layer_input = layer == 0 ? x : between[layer - 1];
    const auto grads = grad.chunk(options.directions(), -1);
    const auto layer_gates = gates[layer].chunk(options.directions(), -1);
    const auto layer_cells = cells[layer].chunk(options.directions(), -1);
    at::Tensor grad_input = at::zeros_like(layer_input);
    for (int64_t direction = 0; direction < options.directions(); ++direction) {
      const auto index = layer * options.directions() + direction, first = index * options.weights();
      const auto found = lstm_direction_backward(grads[direction], grad_hidden[index], grad_cell[index], layer_input,
                                                 layer_gates[direction], layer_cells[direction], states[0][index],
                                                 states[1][index], &weights[first], has_biases, direction == 1);
      grad_input = grad_input + found.input;
      grad_h[index] = found.hidden, grad_c[index] = found.cell;
      for (size_t i = 0; i < found.weights.size(); ++i) grad_weights[first + i] = aliases.to_device(found.weights[i]);
    }
    grad = layer > 0 && train && dropout > 0 ? dropout_backward(grad_input, layer_input, dropout) : grad_input;
  }
  return {aliases.to_device(time_first(grad, options).contiguous()),
          {aliases.to_device(at::stack(grad_h)), aliases.to_device(at::stack(grad_c))},
          grad_weights};
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params,
                                                           bool has_biases, int64_t layers, double dropout, bool train,
                                                           bool bidirectional, bool batch_first) {
  if (!input.is_mps())
    return at::compositeimplicitautograd::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional,
                                               batch_first);
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  const auto results =
      at::_lstm_mps(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

}  // namespace mps_simulator

TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("_lstm_mps", TORCH_FN(mps_simulator::lstm_forward));
  library.impl("lstm_mps_backward", TORCH_FN(mps_simulator::lstm_backward));
}
