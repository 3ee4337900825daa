#include "weft_doctor/examination.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "weft_doctor/lateness.hpp"
#include "weft_doctor/message_waits.hpp"
#include "weft_doctor/process.hpp"
#include "weft_doctor/words.hpp"

namespace weft::doctor {
namespace {

bool has_begun(RecordedCall const& call) {
  return call.state != State::enqueued;
}

/// Failures after which a communicator cannot be used any more.
bool is_fatal(RecordedCall const& call) {
  return call.state == State::failed && call.error_code != "mismatch";
}

/// The call that shows how far a rank has come: its first fatal failure, because later calls fail for the same reason,
/// or else the last call that it has begun.
RecordedCall const* frontier(Dump const& dump) {
  RecordedCall const* last = nullptr;
  for (auto const& call : dump.calls) {
    if (!has_begun(call)) continue;
    last = &call;
    if (is_fatal(call)) break;
  }
  return last;
}

std::uint64_t reached(Dump const& dump) {
  auto const* const call = frontier(dump);
  return call == nullptr ? 0 : call->sequence;
}

RecordedCall const* find_call(Dump const& dump, std::uint64_t sequence) {
  auto const found =
      std::find_if(dump.calls.begin(), dump.calls.end(), [&](auto const& call) { return call.sequence == sequence; });
  return found == dump.calls.end() ? nullptr : &*found;
}

std::vector<int> ranks_of(Dumps const& dumps) {
  std::vector<int> ranks;
  for (auto const* dump : dumps) ranks.push_back(dump->rank);
  return ranks;
}

std::string since(std::optional<std::int64_t> start_ns, Dump const& dump) {
  return start_ns ? " since " + name_duration(dump.written_ns - *start_ns) : std::string();
}

class Examination {
 public:
  Examination(Dumps dumps, std::vector<Dump> const& all, DiagnosisOptions const& options)
      : dumps_(std::move(dumps)), all_(all), options_(options) {
    verdict_.communicator = dumps_.front()->communicator;
    verdict_.name = dumps_.front()->name;
    waits_ = find_message_waits(dumps_, options_.least_wait);
    verdict_.size = dumps_.front()->size;
  }

  Verdict run() {
    bool const found = find_missing_dumps() || find_mismatch() || find_unanswered() || find_behind() || find_late() ||
                       find_awaited_from_any() || find_failed();
    if (!found) verdict_.sentence = describe_health() + describe_lateness();
    return verdict_;
  }

 private:
  void conclude(Finding finding, std::vector<int> culprits, std::optional<std::uint64_t> call, std::string sentence) {
    verdict_.finding = finding;
    verdict_.culprits = std::move(culprits);
    verdict_.call = call;
    verdict_.sentence = std::move(sentence);
  }

  bool find_missing_dumps() {
    std::vector<int> missing;
    for (int rank = 0; rank < verdict_.size; ++rank) {
      auto const has = std::any_of(dumps_.begin(), dumps_.end(), [&](auto const* dump) { return dump->rank == rank; });
      if (!has) missing.push_back(rank);
    }
    if (missing.empty()) return false;
    auto sentence = fmt::format("no dump from {}: {}", name_ranks(missing),
                                missing.size() == 1 ? "it died or was not started" : "they died or were not started");
    std::optional<std::uint64_t> call;
    if (auto const* const front = first_waiter()) {
      auto const& waits = *frontier(*front);
      call = waits.sequence;
      if (waits.state == State::failed) sentence += ", or they have not noticed yet that the others gave up";
      sentence += "; " + describe_waiters(waits.sequence, waits.text);
    }
    for (auto const* one : furthest_behind())
      sentence += fmt::format("; rank {} is behind as well: it {}", one->rank, describe_doing(*one));
    for (auto const& wait : waits_) {
      if (wait.peer == nullptr) sentence += "; " + doctor::describe(wait);
    }
    conclude(Finding::missing_dump, std::move(missing), call, std::move(sentence));
    return true;
  }

  /// The rank that waits, or has failed, in the earliest call.
  [[nodiscard]] Dump const* first_waiter() const {
    Dump const* first = nullptr;
    for (auto const* dump : dumps_) {
      auto const* const call = frontier(*dump);
      if (call == nullptr || call->state == State::finished) continue;
      if (first == nullptr || call->sequence < reached(*first)) first = dump;
    }
    return first;
  }

  /// "ranks 0 and 1 wait in all_reduce(…), call 17, since 12.3 s" or "… failed in …: what the error says"
  [[nodiscard]] std::string describe_waiters(std::uint64_t sequence, std::string const& text) const {
    std::vector<int> waiting;
    std::vector<int> failed;
    Dump const* longest = nullptr;
    RecordedCall const* failure = nullptr;
    for (auto const* dump : dumps_) {
      auto const* const call = frontier(*dump);
      if (call == nullptr || call->sequence != sequence) continue;
      if (call->state == State::started) {
        waiting.push_back(dump->rank);
        if (longest == nullptr || wait_of(*dump) > wait_of(*longest)) longest = dump;
      } else if (call->state == State::failed) {
        failed.push_back(dump->rank);
        failure = call;
      }
    }
    std::string said;
    if (longest != nullptr) {
      said = fmt::format("{} {} in {}, call {},{}", name_ranks(waiting), waiting.size() == 1 ? "waits" : "wait", text,
                         sequence, since(frontier(*longest)->started_ns, *longest));
      if (said.back() == ',') said.pop_back();
    }
    if (failure != nullptr) {
      if (!said.empty()) said += "; ";
      said += fmt::format("{} failed in {}, call {}: {}", name_ranks(failed), text, sequence, failure->error_text);
    }
    return said;
  }

  [[nodiscard]] static std::int64_t wait_of(Dump const& dump) {
    auto const start = frontier(dump)->started_ns;
    return start ? dump.written_ns - *start : 0;
  }

  bool find_mismatch() {
    std::uint64_t settled = 0;  // ranks that finished a call have put up with what was before it
    for (auto const* dump : dumps_) {
      for (auto const& call : dump->calls) {
        if (call.state == State::finished) settled = std::max(settled, call.sequence);
      }
    }
    std::set<std::uint64_t> sequences;
    for (auto const* dump : dumps_) {
      for (auto const& call : dump->calls) {
        if (has_begun(call) && call.sequence >= settled) sequences.insert(call.sequence);
      }
    }
    return std::any_of(sequences.begin(), sequences.end(), [&](auto sequence) { return differs(sequence); });
  }

  bool differs(std::uint64_t sequence) {
    std::map<std::string, std::vector<int>> made;
    for (auto const* dump : dumps_) {
      auto const* const call = find_call(*dump, sequence);
      if (call != nullptr && has_begun(*call)) made[call->text].push_back(dump->rank);
    }
    if (made.size() < 2) return false;
    auto const usual = std::max_element(made.begin(), made.end(),
                                        [](auto const& a, auto const& b) { return a.second.size() < b.second.size(); });
    bool const tie = std::count_if(made.begin(), made.end(),
                                   [&](auto const& one) { return one.second.size() == usual->second.size(); }) > 1;
    std::vector<int> culprits;
    std::string sentence;
    for (auto const& [text, ranks] : made) {
      if (!tie && text == usual->first) continue;
      culprits.insert(culprits.end(), ranks.begin(), ranks.end());
      if (sentence.empty()) {
        sentence = fmt::format("{} made {} as call {}", name_ranks(ranks), text, sequence);
      } else {
        sentence += fmt::format(" where {} made {}", name_ranks(ranks), text);
      }
    }
    if (!tie) {
      sentence += fmt::format(" where {} made {}", usual->second.size() == 1 ? name_ranks(usual->second) : "the others",
                              usual->first);
    }
    std::sort(culprits.begin(), culprits.end());
    conclude(Finding::mismatch, std::move(culprits), sequence, std::move(sentence));
    return true;
  }

  /// Ranks that wait for messages: the one at the end of the chain is to blame, or all of a circle.
  bool find_unanswered() {
    if (waits_.empty() || waits_.front().message->is_from_any()) return false;
    blame(follow(waits_));
    return true;
  }

  /// The same if any rank might send: a server waits like this as long as no rank needs it.
  bool find_awaited_from_any() {
    if (waits_.empty()) return false;
    blame(follow(waits_));
    return true;
  }

  void blame(MessageChain const& chain) {
    std::vector<int> culprits;
    std::string sentence;
    if (chain.circle) {
      for (auto const& wait : chain.waits) culprits.push_back(wait.waiter->rank);
      std::sort(culprits.begin(), culprits.end());
      sentence = culprits.size() == 1 ? name_ranks(culprits) + " waits for itself"
                                      : name_ranks(culprits) + " wait for one another";
    } else if (auto const& last = chain.waits.back(); last.message->is_from_any()) {
      for (auto const* dump : dumps_) {
        if (dump->rank != last.waiter->rank) culprits.push_back(dump->rank);
      }
      std::sort(culprits.begin(), culprits.end());
      sentence = fmt::format("{} sent rank {} no message{}", name_ranks(culprits), last.waiter->rank,
                             last.message->tag ? fmt::format(" with tag {}", *last.message->tag) : std::string());
    } else {
      auto const& [waiter, message, peer] = last;
      culprits = {peer->rank};
      sentence =
          message->sends
              ? fmt::format("rank {} never received message {} from rank {}", peer->rank, message->number, waiter->rank)
              : fmt::format("rank {} never sent message {} to rank {}", peer->rank, message->number, waiter->rank);
      sentence += "; it " + describe_doing(*peer);
    }
    for (auto wait = chain.waits.rbegin(); wait != chain.waits.rend(); ++wait)
      sentence += "; " + doctor::describe(*wait);
    conclude(Finding::unanswered, std::move(culprits), std::nullopt, std::move(sentence));
  }

  /// Whether `waiter` shows that `other`, when it wrote its dump, was expected in a call that it had not reached.
  [[nodiscard]] bool misses(Dump const& waiter, Dump const& other) const {
    auto const* const call = frontier(waiter);
    if (call == nullptr || call->sequence <= reached(other) || !call->started_ns) return false;
    auto const waited = other.written_ns - *call->started_ns;
    if (call->state == State::failed) return waited >= 0;
    return call->state == State::started && waited >= options_.least_wait.count();
  }

  /// Of the ranks that a waiter waits for, those that are furthest behind.
  [[nodiscard]] Dumps furthest_behind() const {
    Dumps behind;
    for (auto const* other : dumps_) {
      if (std::any_of(dumps_.begin(), dumps_.end(), [&](auto const* waiter) { return misses(*waiter, *other); })) {
        behind.push_back(other);
      }
    }
    if (behind.empty()) return behind;
    auto const least = reached(**std::min_element(
        behind.begin(), behind.end(), [](auto const* a, auto const* b) { return reached(*a) < reached(*b); }));
    behind.erase(std::remove_if(behind.begin(), behind.end(), [&](auto const* one) { return reached(*one) > least; }),
                 behind.end());
    return behind;
  }

  bool find_behind() {
    auto const behind = furthest_behind();
    if (behind.empty()) return false;
    auto const least = reached(*behind.front());
    Dump const* waiter = nullptr;
    for (auto const* one : dumps_) {
      if (misses(*one, *behind.front()) && (waiter == nullptr || reached(*one) < reached(*waiter))) waiter = one;
    }
    auto const& call = *frontier(*waiter);
    // Where others only give and go on, they wait in a later call than the first that was missed.
    auto const* const first = find_anywhere(least + 1);
    bool const later = first != nullptr && first->sequence < call.sequence;
    auto sentence = fmt::format("{} never reached {}", name_ranks(ranks_of(behind)), name_call(later ? *first : call));
    for (auto const* one : behind) {
      auto const who = behind.size() == 1 ? std::string("it") : fmt::format("rank {}", one->rank);
      sentence += fmt::format("; {} {}", who, describe_doing(*one));
    }
    sentence += "; " + describe_waiters(call.sequence, later ? call.text : "it");
    conclude(Finding::behind, ranks_of(behind), later ? first->sequence : call.sequence, std::move(sentence));
    return true;
  }

  /// A rank's record of call `sequence`, if a dump still has it.
  [[nodiscard]] RecordedCall const* find_anywhere(std::uint64_t sequence) const {
    for (auto const* dump : dumps_) {
      if (auto const* const call = find_call(*dump, sequence)) return call;
    }
    return nullptr;
  }

  /// "is in barrier(), call 16, since 12.3 s"
  [[nodiscard]] std::string describe_doing(Dump const& dump) const {
    auto const* const last = frontier(dump);
    if (last != nullptr && last->state == State::started) {
      return fmt::format("is in {}{}", name_call(*last), comma(since(last->started_ns, dump)));
    }
    for (auto const& message : dump.messages) {
      if (message.state != State::started) continue;
      auto const number = message.is_from_any() ? std::string() : fmt::format(", message {}", message.number);
      return fmt::format("is in {}{}{}", message.text, number, comma(since(message.started_ns, dump)));
    }
    if (auto elsewhere = describe_elsewhere(dump); !elsewhere.empty()) return elsewhere;
    auto const pending = std::find_if(dump.calls.begin(), dump.calls.end(),
                                      [](auto const& call) { return call.state == State::enqueued; });
    if (pending != dump.calls.end()) {
      return fmt::format("has enqueued {}, but its stream has not started it{}", name_call(*pending),
                         since(pending->enqueued_ns, dump));
    }
    if (last == nullptr && !dump.messages.empty()) return "has made no collective call yet";
    if (last == nullptr) return "has made no call yet";
    auto const ended =
        last->finished_ns ? fmt::format(" {} ago", name_duration(dump.written_ns - *last->finished_ns)) : std::string();
    return fmt::format("has made no call since {} {}{}", name_call(*last),
                       last->state == State::failed ? "failed" : "ended", ended);
  }

  /// What the rank's process does in another communicator. Ranks that are threads of one process are told apart by
  /// their numbers.
  [[nodiscard]] std::string describe_elsewhere(Dump const& dump) const {
    auto const shared = std::count_if(dumps_.begin(), dumps_.end(),
                                      [&](auto const* one) { return process_of(*one) == process_of(dump); }) > 1;
    for (auto const& other : all_) {
      if (other.communicator == dump.communicator || process_of(other) != process_of(dump)) continue;
      if (shared && (other.rank != dump.rank || other.size != dump.size)) continue;
      auto const* const call = frontier(other);
      if (call == nullptr || call->state != State::started) continue;
      return fmt::format("is in {} of communicator {}{}", name_call(*call),
                         other.name.empty() ? other.communicator : other.name, comma(since(call->started_ns, other)));
    }
    return {};
  }

  [[nodiscard]] static std::string comma(std::string const& text) { return text.empty() ? text : "," + text; }

  bool find_late() {
    auto const* const first = first_waiter();
    if (first == nullptr || !is_fatal(*frontier(*first))) return false;
    if (frontier(*first)->error_code == "aborted") return false;  // it did not fail because a rank was late
    auto const sequence = reached(*first);
    std::optional<std::int64_t> given_up;
    for (auto const* dump : dumps_) {
      auto const* const call = frontier(*dump);
      if (call == nullptr || call->sequence != sequence || !is_fatal(*call) || !call->finished_ns) continue;
      if (!given_up || *call->finished_ns < *given_up) given_up = call->finished_ns;
    }
    Dumps late;
    std::int64_t least = 0;
    for (auto const* dump : dumps_) {
      auto const* const call = frontier(*dump);
      if (!given_up || call == nullptr || call->sequence != sequence || !call->started_ns) continue;
      auto const delay = *call->started_ns - *given_up;
      if (delay <= 0) continue;
      least = late.empty() ? delay : std::min(least, delay);
      late.push_back(dump);
    }
    if (late.empty()) return false;
    conclude(Finding::late, ranks_of(late), sequence,
             fmt::format("{} came to {}, {} after the others had given it up: {}", name_ranks(ranks_of(late)),
                         name_call(*frontier(*first)), name_duration(least), frontier(*first)->error_text));
    return true;
  }

  bool find_failed() {
    auto const* const first = first_waiter();
    if (first == nullptr || frontier(*first)->state != State::failed) return false;
    auto const& call = *frontier(*first);
    conclude(Finding::failed, {}, call.sequence, describe_waiters(call.sequence, call.text));
    return true;
  }

  /// Nothing is wrong with that, but it is what makes steps slow.
  [[nodiscard]] std::string describe_lateness() const {
    auto const late = find_lateness(dumps_);
    if (!late) return {};
    return fmt::format("; rank {} comes late: the others waited for it {} of {}", late->rank,
                       name_duration(late->waited_ns), name_duration(late->within_ns));
  }

  [[nodiscard]] std::string describe_health() const {
    auto const [least, most] = std::minmax_element(
        dumps_.begin(), dumps_.end(), [](auto const* a, auto const* b) { return reached(*a) < reached(*b); });
    auto const all = dumps_.size() == 1 ? std::string("its one rank has") : std::string("all ranks have");
    if (reached(**most) == 0) return all + " made no call: nothing is missing";
    if (reached(**least) != reached(**most)) {
      return fmt::format("ranks are between call {} and call {}, and none has waited for {}: nothing is missing",
                         reached(**least), reached(**most), name_duration(options_.least_wait.count()));
    }
    auto const& call = *frontier(**least);
    auto const done = std::all_of(dumps_.begin(), dumps_.end(),
                                  [](auto const* one) { return frontier(*one)->state == State::finished; });
    return done ? fmt::format("{} finished call {}: nothing is missing",
                              dumps_.size() == 1 ? "its one rank" : "all ranks", call.sequence)
                : fmt::format("{} reached {}: nobody is missing", all, name_call(call));
  }

  Dumps dumps_;
  std::vector<MessageWait> waits_;
  std::vector<Dump> const& all_;
  DiagnosisOptions options_;
  Verdict verdict_;
};

}  // namespace

Verdict examine(Dumps dumps, std::vector<Dump> const& all, DiagnosisOptions const& options) {
  return Examination(std::move(dumps), all, options).run();
}

}  // namespace weft::doctor
