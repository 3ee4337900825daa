#include "options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <weft/error.hpp>
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

void add_options(CLI::App& app, Options& options, std::string& link) {
  CLI::Range const size(1, 1 << 20);
  CLI::Validator const megabytes = within(0.001, 65536.0);
  app.add_option("--ranks", options.ranks, "local ranks to fork (under mpirun: leave out)")
      ->check(CLI::Range(1, weft::kMostLocalRanks))
      ->capture_default_str();
  app.add_option("--layers", options.model.layers, "transformer blocks")->check(size)->capture_default_str();
  app.add_option("--width", options.model.width, "width of the residual stream")->check(size)->capture_default_str();
  app.add_option("--heads", options.model.heads, "attention heads; divides --width")
      ->check(size)
      ->capture_default_str();
  app.add_option("--seq", options.model.seq, "bytes per sequence")->check(size)->capture_default_str();
  app.add_option("--batch", options.batch, "sequences per step over all ranks")->check(size)->capture_default_str();
  app.add_option("--steps", options.steps, "optimizer steps in all")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--lr", options.lr, "learning rate after 10 steps of warm-up")
      ->check(within(1e-12, 1e3))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "seed of weights, batches and sample")
      ->check(within(0, 9007199254740992.0))
      ->capture_default_str();
  app.add_option("--data", options.data, "text to learn from (default: the texts in /usr/share/common-licenses)");
  app.add_option("--link", link, "emulated link, as 20us:2GB/s, or auto: communication of about half the compute time");
  app.add_option("--bucket-mb", options.bucket_mb, "cap of a gradient bucket in MiB")
      ->check(megabytes)
      ->capture_default_str();
  app.add_option("--first-bucket-mb", options.first_bucket_mb, "cap of the first bucket in MiB")
      ->check(megabytes)
      ->capture_default_str();
  app.add_option("--last-bucket-mb", options.last_bucket_mb,
                 "in MiB: near the end a bucket takes half of what is left, but this much at least; as --bucket-mb: "
                 "equal buckets to the end")
      ->check(megabytes)
      ->capture_default_str();
  app.add_option("--strategy", options.strategy,
                 "ddp: every rank keeps all; zero1: optimizer states are sharded; zero2: gradients too")
      ->check(CLI::IsMember({"ddp", "zero1", "zero2"}))
      ->capture_default_str();
  app.add_flag("--compare", options.compare,
               "run the same steps also without overlap, without buckets and with blocking MPI");
  app.add_option("--trace", options.trace, "write compute and communication intervals as Chrome/Perfetto JSON");
  app.add_option("--report-json", options.report_json, "write every printed figure as JSON");
  auto* compare = app.get_option("--compare");
  app.add_option("--save", options.save, "write a checkpoint after the last step")->excludes(compare);
  app.add_option("--resume", options.resume, "continue from a checkpoint")->excludes(compare);
  app.add_option("--sample", options.sample, "bytes of text to generate at the end")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--prompt", options.prompt, "what the generated text starts with")->capture_default_str();
}

void check(Options const& options) {
  if (options.model.width % options.model.heads != 0) {
    throw CLI::ValidationError(
        "--heads", fmt::format("{} heads do not divide --width {}", options.model.heads, options.model.width));
  }
  if (options.sample > 0 && options.prompt.empty()) {
    throw CLI::ValidationError("--prompt", "needs at least one byte; --sample 0 leaves the sample out");
  }
  if (options.compare && options.strategy != "ddp") {
    throw CLI::ValidationError("--strategy", "--compare compares ways to run ddp; leave one of them out");
  }
  check_batch(options, options.ranks);
}

int fail(char const* message) {
  weft::report_failure(fmt::format("train_gpt: {}", message));
  return 2;
}

}  // namespace

weft::BucketerOptions Options::bucketer() const {
  weft::BucketerOptions bucketer;
  bucketer.limits = {bytes_of(first_bucket_mb), bytes_of(bucket_mb), bytes_of(last_bucket_mb)};
  return bucketer;
}

void check_batch(Options const& options, int ranks) {
  if (options.batch % ranks != 0) {
    throw weft::Error(weft::ErrorCode::invalid_argument,
                      fmt::format("--batch {} cannot be shared equally by {} ranks; take a multiple of {}",
                                  options.batch, ranks, ranks));
  }
}

std::optional<Options> parse_options(int argc, char const* const* argv, int& exit_code) {
  Options options;
  std::string link;
  CLI::App app("Trains a byte-level GPT on text, the gradients averaged over ranks by Weft while backward goes on.",
               "train_gpt");
  add_options(app, options, link);
  exit_code = 0;
  try {
    app.parse(argc, argv);
    check(options);
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
  for (CLI::Option const* option : app.get_options()) {
    if (option->count() > 0) {
      options.given.insert(option->get_name());
    }
  }
  return options;
}

}  // namespace train_gpt
