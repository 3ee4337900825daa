#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>
#include <weft/weft.hpp>

// All of its bits; std::stof reads them back.
std::string exact(float value) {
  std::ostringstream text;
  text << std::hexfloat << value;
  return text.str();
}

// resumable FOLDER STEPS RANKS: trains until so many steps were applied, from where the checkpoint in FOLDER is.
int main(int argc, char** argv) {
  std::string const folder = argc > 1 ? argv[1] : "checkpoint";
  int const steps = argc > 2 ? std::stoi(argv[2]) : 200;
  int const ranks = argc > 3 ? std::stoi(argv[3]) : 2;
  return weft::launch({.ranks = ranks}, [&](weft::Communicator& world) {
    constexpr std::size_t kLayers = 3;
    constexpr std::size_t kSize = 1000;
    constexpr int kPasses = 4;  // of a step

    std::vector<weft::Buffer> layers;         // f16; the optimizer keeps f32 originals of what it owns
    std::vector<weft::NamedParameter> names;  // what the checkpoint calls them
    weft::ParameterGroup group{{}, weft::AdamWOptions{.weight_decay = 0}};
    for (std::size_t i = 0; i < kLayers; ++i) {
      layers.push_back(weft::Buffer::host(kSize, weft::DataType::f16));
      group.parameters.push_back(layers.back().view());
      names.push_back({"layer." + std::to_string(i), {kSize}});
    }
    weft::GradScaler scaler({.growth_interval = 50});
    weft::ZeroOptions options{.gradients = {.scaler = &scaler, .max_norm = 1.0}};
    options.buckets.rebuild = false;  // shards do not move, so that load() may come before the first step
    weft::ZeroOptimizer zero(world, {group}, options);
    weft::LrSchedule const schedule{
        .peak_lr = 0.05, .warmup_steps = 10, .total_steps = 200, .decay = weft::LrDecay::cosine};

    long batch = 0;  // the next one: a step that is skipped takes one as well
    if (std::filesystem::exists(folder + "/model.safetensors.index.json")) {
      weft::Checkpoint const saved = weft::Checkpoint::open(world, folder);
      weft::load(saved, world, zero, names);  // weights, moments, and the number of steps that were applied
      auto const& own = saved.info().metadata;
      batch = std::stol(own.at("batch"));
      scaler.set_state({.scale = std::stof(own.at("scale")),
                        .growth_tracker = std::stol(own.at("growth")),
                        .hysteresis_left = std::stol(own.at("hysteresis"))});
    }
    weft::CheckpointSaver saver(world, folder);

    while (zero.step_count() < steps) {
      zero.set_lr(schedule.at(zero.step_count()));
      for (int pass = 0; pass < kPasses; ++pass, ++batch) {
        // Each rank's own data; their mean is 0.5, of however many ranks.
        float const share = (static_cast<float>(world.rank()) + 0.5F) / static_cast<float>(world.size());
        float const wanted = share + (batch % 2 == 0 ? 0.25F : -0.25F);
        auto const forward_and_backward = [&] {
          for (std::size_t i = 0; i < kLayers; ++i) zero.wait_parameter(i);  // forward
          for (std::size_t i = kLayers; i-- > 0;) {
            auto const* weights = static_cast<weft::Half const*>(zero.parameter(i).data);
            auto* gradient = static_cast<weft::Half*>(zero.gradient(i).data);
            for (std::size_t j = 0; j < kSize; ++j) {
              float const sum = pass == 0 ? 0 : weft::to_float(gradient[j]);  // of the passes before
              float const loss_gradient = (weft::to_float(weights[j]) - wanted) / kPasses;
              gradient[j] = weft::to_half(sum + scaler.scale() * loss_gradient);
            }
            zero.mark_ready(i);
          }
        };
        if (pass + 1 == kPasses) {
          forward_and_backward();  // sends the sums
        } else {
          zero.no_sync([&] {  // adds up here, sends nothing
            forward_and_backward();
            zero.step();
          });
        }
      }
      zero.step();      // unscales and clips what all ranks have, and updates, or skips on every rank
      scaler.update();  // lower after an overflow
      if (!zero.gradient_norm().finite || zero.step_count() % 50 != 0) continue;
      auto const [scale, growth, hysteresis] = scaler.state();
      weft::save(saver, zero, names,
                 {.metadata = {{"batch", std::to_string(batch)},
                               {"scale", exact(scale)},
                               {"growth", std::to_string(growth)},
                               {"hysteresis", std::to_string(hysteresis)}}});  // written while training goes on
    }
    saver.wait();  // until the last one counts
    zero.wait_parameters();
    if (world.rank() == 0) {
      std::cout << "batch " << batch << ", scale " << scaler.scale() << ", learned "
                << weft::to_float(static_cast<weft::Half const*>(zero.parameter(2).data)[999]) << "\n";
    }
    return 0;
  });
}
