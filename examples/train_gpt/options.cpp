#include "options.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <weft/error.hpp>
#include <weft/gradient_compression.hpp>
#include <weft/launch.hpp>

namespace train_gpt {
namespace {

std::size_t bytes_of(double megabytes) {
  return static_cast<std::size_t>(megabytes * (1 << 20));
}

/// CLI::Range lets NaN pass.
CLI::Validator within(double least, double most) {
  return {[=](std::string& text) {
            double value = 0;
            bool const good = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
            return good ? std::string() : fmt::format("{} is not a number from {:g} to {:g}", text, least, most);
          },
          fmt::format("{:g} - {:g}", least, most)};
}

weft::LrDecay decay_named(std::string const& name) {
  if (name == "linear") return weft::LrDecay::linear;
  if (name == "cosine") return weft::LrDecay::cosine;
  return name == "inverse-sqrt" ? weft::LrDecay::inverse_square_root : weft::LrDecay::constant;
}

/// What an option is for, where it is not for all: it would be ignored without a word.
struct Scope {
  char const* option;
  char const* only;  ///< as in an error
  bool (*applies)(Options const&);
};

bool has_buckets(Options const& options) {
  return options.strategy == "ddp" || options.strategy == "zero1" || options.strategy == "zero2";
}
bool has_units(Options const& options) {
  return !has_buckets(options);
}
bool is_hybrid(Options const& options) {
  return options.strategy == "hsdp";
}
bool is_scaled(Options const& options) {
  return options.precision == "fp16";
}

bool is_on_gpu(Options const& options) {
  return options.device == "cuda";
}
bool is_on_cpu(Options const& options) {
  return !is_on_gpu(options);
}

constexpr Scope kScopes[]{
    {"--cuda-graph", "--device cuda", is_on_gpu},
    {"--link", "--device cpu", is_on_cpu},
    {"--compare", "--device cpu", is_on_cpu},
    {"--autotune", "--device cpu", is_on_cpu},
    {"--bucket-mb", "--strategy ddp, zero1 and zero2", has_buckets},
    {"--first-bucket-mb", "--strategy ddp, zero1 and zero2", has_buckets},
    {"--last-bucket-mb", "--strategy ddp, zero1 and zero2", has_buckets},
    {"--bucket-policy", "--strategy ddp, zero1 and zero2", has_buckets},
    {"--prefetch", "--strategy zero3 and hsdp", has_units},
    {"--gather-cap-mb", "--strategy zero3 and hsdp", has_units},
    {"--keep-gathered", "--strategy zero3 and hsdp", has_units},
    {"--shard-size", "--strategy hsdp", is_hybrid},
    {"--sum-by-group", "--strategy hsdp", is_hybrid},
    {"--loss-scale", "--precision fp16", is_scaled},
    {"--growth-interval", "--precision fp16", is_scaled},
};

void check_scopes(Options const& options) {
  for (Scope const& scope : kScopes) {
    if (options.given.contains(scope.option) && !scope.applies(options)) {
      throw CLI::ValidationError(scope.option, fmt::format("is for {}", scope.only));
    }
  }
}

template <typename OneOf>
weft::OptimizerOptions with(OneOf one, Options const& options) {
  one.lr = options.lr;
  if (options.weight_decay) one.weight_decay = *options.weight_decay;
  return one;
}

CLI::Validator megabytes() {
  return within(0.001, 65536.0);
}

constexpr int kMost = 1 << 20;

void add_model_options(CLI::App& app, Options& options) {
  app.add_option("--layers", options.model.layers, "transformer blocks")
      ->check(CLI::Range(1, 1 << 14))
      ->capture_default_str();
  app.add_option("--width", options.model.width, "width of the residual stream")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  app.add_option("--heads", options.model.heads, "attention heads; divides --width")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  app.add_option("--seq", options.model.seq, "bytes per sequence")->check(CLI::Range(1, kMost))->capture_default_str();
  app.add_option("--batch", options.batch, "sequences per step over all ranks")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "optimizer steps in all")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of weights, batches and sample")
      ->check(within(0, 9007199254740992.0))
      ->capture_default_str();
  app.add_option("--data", options.data, "text to learn from (default: the texts in /usr/share/common-licenses)");
}

void add_optimizer_options(CLI::App& app, Options& options) {
  app.add_option("--optimizer", options.optimizer, "adamw, adam, sgd (momentum 0.9), lamb, lion or adagrad")
      ->check(CLI::IsMember({"adamw", "adam", "sgd", "lamb", "lion", "adagrad"}))
      ->capture_default_str();
  app.add_option("--lr", options.lr, "learning rate after warm-up")->check(within(1e-12, 1e3))->capture_default_str();
  app.add_option("--weight-decay", options.weight_decay, "instead of the optimizer's default")->check(within(0, 1e3));
  app.add_option("--warmup", options.warmup, "steps over which the learning rate rises")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--decay", options.decay, "of the learning rate, to the last of --steps")
      ->check(CLI::IsMember({"constant", "linear", "cosine", "inverse-sqrt"}))
      ->capture_default_str();
  app.add_option("--clip", options.clip, "scales gradients to at most this norm, over all ranks (0: no)")
      ->check(within(0, 1e30))
      ->capture_default_str();
  app.add_option("--state", options.state, "of the optimizer: fp32, or 8bit in blocks")
      ->check(CLI::IsMember({"fp32", "8bit"}))
      ->capture_default_str();
  app.add_option("--accumulate", options.accumulate,
                 "passes per step and rank whose gradients add up before they are sent")
      ->check(CLI::Range(1, kMost))
      ->capture_default_str();
  app.add_option(
         "--precision", options.precision,
         "of parameters and gradients: fp32, bf16, or fp16 with a loss scale; arithmetic and originals are fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_option("--loss-scale", options.loss_scale,
                 "loss scale of fp16 at the start (not of a resumed run); halves at an overflow")
      ->check(within(1, 1e30))
      ->capture_default_str();
  app.add_option("--growth-interval", options.growth_interval, "steps without overflow after which it doubles")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
}

void add_rank_options(CLI::App& app, Options& options, std::string& link) {
  app.add_option("--ranks", options.ranks, "local ranks to fork (under mpirun: leave out)")
      ->check(CLI::Range(1, weft::kMostLocalRanks))
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "cpu, or cuda: a GPU for each rank, as far as there are (rank modulo GPUs)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_flag("--cuda-graph", options.cuda_graph,
               "--device cuda: from the second step on a step is one CUDA graph, which the host launches");
  app.add_option("--link", link, "emulated link, as 20us:2GB/s, or auto: communication of about half the compute time");
  app.add_option("--strategy", options.strategy,
                 "ddp: every rank keeps all; zero1: optimizer states are sharded; zero2: gradients too; zero3: "
                 "parameters too; hsdp: as zero3 within groups of ranks, which are replicas")
      ->check(CLI::IsMember({"ddp", "zero1", "zero2", "zero3", "hsdp"}))
      ->capture_default_str();
  app.add_flag("--recompute", options.recompute,
               "keep only each block's input, and compute the rest again in backward");
  app.add_option_function<std::string>(
      "--memory-budget",
      [&options](std::string const& text) {
        auto const bytes = weft::parse_bytes(text);
        if (!bytes || *bytes == 0) {
          throw CLI::ValidationError("--memory-budget", fmt::format("{} is no size, as 512M or 2G", text));
        }
        options.memory_budget = *bytes;
      },
      "ends the run where a rank would need more memory (e.g. 512M), saying what for");
}

void add_unit_options(CLI::App& app, Options& options) {
  app.add_option("--prefetch", options.prefetch, "zero3, hsdp: units gathered ahead of the one in use")
      ->check(CLI::Range(0, kMost))
      ->capture_default_str();
  app.add_option("--gather-cap-mb", options.gather_cap_mb,
                 "zero3, hsdp: most MiB of gathered units at a time (0: what --prefetch takes)")
      ->check(within(0, kMost))
      ->capture_default_str();
  app.add_flag("--keep-gathered", options.keep_gathered,
               "zero3, hsdp: a unit stays from forward to backward if the cap allows");
  app.add_option("--shard-size", options.shard_size,
                 "hsdp: ranks in a group; divides their number (0: half of them, of an odd number none)")
      ->check(CLI::Range(0, kMost))
      ->capture_default_str();
  app.add_flag("--sum-by-group", options.sum_by_group,
               "hsdp: gradients are averaged within groups first: less is sent between groups, other bits");
}

void add_bucket_options(CLI::App& app, Options& options) {
  app.add_option("--bucket-mb", options.bucket_mb, "cap of a gradient bucket in MiB")
      ->check(megabytes())
      ->capture_default_str();
  app.add_option("--first-bucket-mb", options.first_bucket_mb, "cap of the first bucket in MiB")
      ->check(megabytes())
      ->capture_default_str();
  app.add_option("--last-bucket-mb", options.last_bucket_mb,
                 "in MiB: near the end a bucket takes half of what is left, but this much at least; as --bucket-mb: "
                 "equal buckets to the end")
      ->check(megabytes())
      ->capture_default_str();
  app.add_option("--bucket-policy", options.bucket_policy,
                 "caps: as above; optimal: so that the last bucket arrives first, by what the first step measures")
      ->check(CLI::IsMember({"caps", "optimal"}))
      ->capture_default_str();
  app.add_option(
      "--schedule", options.step_schedule,
      "ddp on CPUs: plans when gradients are sent. weft: by what the first steps measure; program: one after "
      "another, nothing overlaps; buckets=25: in buckets of 25 MB");
  app.add_option("--compress", options.compress, "send gradients as bf16 or fp16 (ddp, zero1, zero2; --precision fp32)")
      ->check(CLI::IsMember({"none", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_flag("--error-feedback", options.error_feedback, "what --compress rounds away is added to the next step's");
}

void add_report_options(CLI::App& app, Options& options) {
  app.add_flag("--compare", options.compare,
               "run the same steps also without overlap, without buckets and with blocking MPI");
  app.add_option("--compare-caps", options.compare_caps,
                 "with --compare: instead, run the same steps with these caps of buckets in MiB")
      ->check(megabytes())
      ->take_all()
      ->needs(app.get_option("--compare"));
  app.add_option("--trace", options.trace, "write compute and communication intervals as Chrome/Perfetto JSON");
  app.add_option("--report-json", options.report_json, "write every printed figure as JSON");
  app.add_option("--sample", options.sample, "bytes of text to generate at the end")
      ->check(CLI::Range(0, kMost))
      ->capture_default_str();
  app.add_option("--prompt", options.prompt, "what the generated text starts with")->capture_default_str();
}

void add_tuning_options(CLI::App& app, Options& options) {
  auto* autotune = app.add_flag("--autotune", options.autotune,
                                "settings that do not change results (buckets, prefetch) are tried in the first steps, "
                                "or taken from an earlier run")
                       ->excludes(app.get_option("--compare"));
  app.add_option("--autotune-share", options.autotune_share, "--autotune: of --steps, settled by then")
      ->check(within(0.0001, 1))
      ->needs(autotune)
      ->capture_default_str();
}

void add_checkpoint_options(CLI::App& app, Options& options) {
  auto* compare = app.get_option("--compare");
  app.add_option("--save", options.save, "write a checkpoint after the last step")->excludes(compare);
  auto* checkpoint =
      app.add_option("--checkpoint", options.checkpoint,
                     "folder for a sharded checkpoint, written while training goes on, after the last step")
          ->excludes(compare);
  app.add_option("--checkpoint-every", options.checkpoint_every, "and after every so many steps")
      ->check(CLI::Range(1, 1 << 30))
      ->needs(checkpoint);
  app.add_flag("--overwrite-checkpoint", options.overwrite_checkpoint,
               "even where --checkpoint's folder holds another run's")
      ->needs(checkpoint);
  app.add_option("--resume", options.resume,
                 "continue from a file of --save, or, at any number of ranks, from a folder of --checkpoint")
      ->excludes(compare);
}

/// A chapter of --help: what `add` adds.
template <typename Add>
void chapter(CLI::App& app, char const* title, Add add) {
  auto const before = app.get_options().size();
  add();
  auto const all = app.get_options();
  for (auto i = before; i < all.size(); ++i) all[i]->group(title);
}

void add_options(CLI::App& app, Options& options, std::string& link) {
  chapter(app, "Model and data", [&] { add_model_options(app, options); });
  chapter(app, "Optimizer", [&] { add_optimizer_options(app, options); });
  chapter(app, "Ranks and memory", [&] { add_rank_options(app, options, link); });
  chapter(app, "Units (zero3, hsdp)", [&] { add_unit_options(app, options); });
  chapter(app, "Buckets (ddp, zero1, zero2)", [&] { add_bucket_options(app, options); });
  chapter(app, "What it prints", [&] { add_report_options(app, options); });
  chapter(app, "Settings tried", [&] { add_tuning_options(app, options); });
  chapter(app, "Checkpoints", [&] { add_checkpoint_options(app, options); });
}

void check_schedule(Options const& options) {
  std::string const& wanted = options.step_schedule;
  if (wanted.empty()) return;
  if (wanted != "weft" && wanted != "program" && !options.schedule_bucket_mb()) {
    throw CLI::ValidationError("--schedule", fmt::format("{} is none of weft, program and buckets=MB", wanted));
  }
  if (options.strategy != "ddp" || options.device != "cpu" || options.compare || options.compress != "none") {
    throw CLI::ValidationError("--schedule", "is for --strategy ddp on CPUs, without --compress and --compare");
  }
  for (char const* const other : {"--bucket-mb", "--first-bucket-mb", "--last-bucket-mb", "--bucket-policy"}) {
    if (options.given.contains(other)) {
      throw CLI::ValidationError("--schedule", fmt::format("decides what {} would; leave one of them out", other));
    }
  }
}

void check(Options const& options) {
  if (options.sample > 0 && options.prompt.empty()) {
    throw CLI::ValidationError("--prompt", "needs at least one byte; --sample 0 leaves the sample out");
  }
  if (options.compare && options.strategy != "ddp") {
    throw CLI::ValidationError("--strategy", "--compare compares ways to run ddp; leave one of them out");
  }
  if (options.compare && (options.precision != "fp32" || options.accumulate != 1 || options.clip > 0)) {
    throw CLI::ValidationError("--compare", "compares fp32 steps of one pass without clipping");
  }
  check_schedule(options);
  bool const compresses = options.compress != "none";
  if (compresses && (options.precision != "fp32" || options.strategy == "zero3" || options.strategy == "hsdp")) {
    throw CLI::ValidationError("--compress", "is for fp32 gradients of ddp, zero1 and zero2");
  }
  if (options.error_feedback && !compresses) {
    throw CLI::ValidationError("--error-feedback", "needs --compress bf16 or fp16");
  }
}

int fail(char const* message) {
  weft::report_failure(fmt::format("train_gpt: {}", message));
  return 2;
}

}  // namespace

std::optional<weft::GradientCompressor> Options::compressor() const {
  if (compress == "none") return std::nullopt;
  weft::DataType const wire = compress == "bf16" ? weft::DataType::bf16 : weft::DataType::f16;
  return weft::GradientCompressor({wire, error_feedback});
}

weft::BucketerOptions Options::bucketer() const {
  weft::BucketerOptions bucketer;
  bucketer.limits = {bytes_of(first_bucket_mb), bytes_of(bucket_mb), bytes_of(last_bucket_mb)};
  if (auto const compressor = this->compressor()) bucketer.hook = compressor->hook();
  if (bucket_policy == "optimal") bucketer.policy = weft::BucketPolicy::optimal;
  return bucketer;
}

std::optional<double> Options::schedule_bucket_mb() const {
  std::string_view const prefix = "buckets=";
  if (!step_schedule.starts_with(prefix)) return std::nullopt;
  double megabytes = 0;
  bool const good = CLI::detail::lexical_cast(step_schedule.substr(prefix.size()), megabytes);
  return good && megabytes >= 1e-3 && megabytes <= 65536 ? std::optional(megabytes) : std::nullopt;
}

weft::DataType Options::parameter_type() const {
  if (precision == "bf16") return weft::DataType::bf16;
  return precision == "fp16" ? weft::DataType::f16 : weft::DataType::f32;
}

weft::OptimizerOptions Options::optimizer_options() const {
  if (optimizer == "adam") return with(weft::AdamOptions{}, *this);
  if (optimizer == "sgd") return with(weft::SgdOptions{.momentum = 0.9}, *this);
  if (optimizer == "lamb") return with(weft::LambOptions{}, *this);
  if (optimizer == "lion") return with(weft::LionOptions{}, *this);
  if (optimizer == "adagrad") return with(weft::AdagradOptions{}, *this);
  return with(weft::AdamWOptions{}, *this);
}

weft::OptimizerSettings Options::optimizer_settings() const {
  return {.state = state == "8bit" ? weft::StateType::block8 : weft::StateType::f32};
}

weft::LrSchedule Options::schedule() const {
  return {.peak_lr = lr, .warmup_steps = warmup, .total_steps = steps, .decay = decay_named(decay)};
}

double Options::effective_weight_decay() const {
  return std::visit([](auto const& one) { return one.weight_decay; }, optimizer_options());
}

int Options::group_size(int of_ranks) const noexcept {
  return shard_size > 0 ? shard_size : std::max(1, of_ranks / 2);
}

void check_device([[maybe_unused]] Options const& options) {
#ifndef WEFT_WITH_CUDA
  if (!is_on_gpu(options)) return;
  throw weft::Error(weft::ErrorCode::unsupported,
                    "--device cuda: this train_gpt was built without CUDA; build the preset `cuda`");
#endif
}

void check_groups(Options const& options, int ranks) {
  if (options.strategy != "hsdp") return;
  bool const halves = options.shard_size > 0 || ranks == 1 || ranks % 2 == 0;
  if (halves && ranks % options.group_size(ranks) == 0) return;
  std::vector<int> sizes;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  std::string const why = halves ? fmt::format("--shard-size {} does not divide {} ranks", options.shard_size, ranks)
                                 : fmt::format("--strategy hsdp: {} ranks have no half", ranks);
  throw weft::Error(weft::ErrorCode::invalid_argument,
                    fmt::format("{}; give --shard-size {}", why, fmt::join(sizes, " or ")));
}

void check_run(Options const& options) {
  auto const refuse = [](std::string const& why) { throw weft::Error(weft::ErrorCode::invalid_argument, why); };
  if (options.model.width % options.model.heads != 0) {
    refuse(fmt::format("--heads: {} heads do not divide --width {}", options.model.heads, options.model.width));
  }
  if (options.decay != "constant" && options.warmup >= options.steps) {
    refuse(fmt::format("--warmup: {} of {} steps leave none to decay", options.warmup, options.steps));
  }
  check_batch(options, options.ranks);
}

void check_batch(Options const& options, int ranks) {
  int const shares = ranks * options.accumulate;
  if (options.batch % shares != 0) {
    throw weft::Error(
        weft::ErrorCode::invalid_argument,
        options.accumulate == 1
            ? fmt::format("--batch {} cannot be shared equally by {} ranks; take a multiple of {}", options.batch,
                          ranks, shares)
            : fmt::format("--batch {} cannot be shared equally by {} ranks in {} passes each; take a multiple of {}",
                          options.batch, ranks, options.accumulate, shares));
  }
}

std::optional<Options> parse_options(int argc, char const* const* argv, int& exit_code) {
  Options options;
  std::string link;
  CLI::App app("Trains a byte-level GPT on text, the gradients averaged over ranks by Weft while backward goes on.",
               "train_gpt");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // "$usual --steps 3"
  app.allow_extras();                                                            // CLI11 would name them in reverse
  add_options(app, options, link);
  exit_code = 0;
  try {
    app.parse(argc, argv);
    for (CLI::Option const* option : app.get_options()) {
      if (option->count() > 0) options.given.insert(option->get_name());
    }
    if (auto const extras = app.remaining(); !extras.empty()) {
      throw CLI::ValidationError(
          fmt::format("{}: not understood; train_gpt --help lists all options", fmt::join(extras, " ")));
    }
    check_scopes(options);
    check(options);
    if (options.resume.empty()) check_run(options);  // most of a resumed one is its checkpoint's
    check_device(options);
    options.auto_link = link == "auto";
    if (!link.empty() && !options.auto_link) {
      options.link = weft::EmulatedLink::parse(link);
    }
  } catch (CLI::ParseError const& error) {
    exit_code = error.get_exit_code() == 0 ? app.exit(error) : fail(error.what());
    return std::nullopt;
  } catch (weft::Error const& error) {
    exit_code = fail(error.what());
    return std::nullopt;
  }
  return options;
}

}  // namespace train_gpt
