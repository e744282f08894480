// Decides which experts of a mixture-of-experts model are in memory: a state machine without threads, files or clocks.
// Its owner reads what it says shall be read, forgets what it says is evicted, and tells it what has arrived.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weights/policies/policy.h"
#include "weights/predictors/predictor.h"
#include "weights/routing.h"

namespace edgert {

// The best measured pair (docs/moe.md).
inline constexpr const char* kDefaultPolicy = "lfu";
inline constexpr const char* kDefaultPredictor = "blend";

enum class ExpertState : std::uint8_t { on_disk, in_flight, resident };

struct ExpertCacheOptions {
  ExpertShape shape = {};
  std::int32_t top_k = 1;
  std::vector<std::int64_t> expert_bytes = {};  // [layer][expert]
  std::int64_t capacity_bytes = 0;              // most bytes of experts that are resident or in flight
  // Prediction: at most so many of the likeliest experts of a layer are considered (over-fetch: top_k or more),
  std::int32_t over_fetch = 4;
  // read if they come true at least so often,
  float min_probability = 0.2f;
  // and if what must go for them is needed at a token with at most this share of that probability.
  float victim_share = 0.25f;
  // Predicted reads that may be in flight together; 0: none.
  std::int64_t prefetch_bytes = 0;
};

// What the owner must do, in this order: give up `evict`, stop `cancel` if their reads have not begun (and say
// `cancelled`; else let them arrive), begin to read `load`. Valid until the next call of the cache.
struct CacheDecision {
  std::span<const ExpertRef> evict, cancel, load;
  std::int32_t num_deferred = 0;  // of this layer's experts that wait for room: `release` some, then `admit`
};

struct ExpertCounters {
  std::int64_t routed = 0;                           // experts that the router asked for
  std::int64_t hits = 0, late_hits = 0, misses = 0;  // resident, in flight, on disk when it asked
  std::int64_t loads = 0, prefetch_loads = 0;        // reads ordered because of the router, because of a prediction
  std::int64_t cancelled = 0;                        // predicted reads that never began
  std::int64_t wasted = 0;                           // predicted reads that were evicted unused
  std::int64_t coarse = 0;                           // computed from their leading parts: counted by the owner
  std::int64_t load_bytes = 0, prefetch_bytes = 0, cancelled_bytes = 0, wasted_bytes = 0;
  std::int64_t predicted_routed = 0;              // experts that the router asked for after a prediction of the layer,
  std::int64_t recalled_top_k = 0, recalled = 0;  // and those among the likeliest top_k, over_fetch of it
};

class ExpertCache {
 public:
  // Throws std::invalid_argument for sizes that do not fit together, or a capacity below the experts of one token.
  ExpertCache(ExpertCacheOptions options, std::unique_ptr<EvictionPolicy> policy,
              std::unique_ptr<ExpertPredictor> predictor);

  // The tokens of the step that begins, as far as predictors want to know them.
  void begin_step(std::span<const std::int32_t> tokens) { predictor_->begin_step(tokens); }
  // The router's choice for a layer of a step; for several tokens their union, with the largest weight of each.
  // Pins what is admitted: all of it, or as much as there is room for. REQUIRES: experts ascend; nothing of the layer
  // is pinned.
  CacheDecision route(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights);
  // How the last `route` found an expert of its list: by index.
  enum class Found : std::uint8_t { hit, late, miss };
  std::span<const Found> found() const { return found_; }
  // Computed: may be evicted again. The second form: everything of the layer.
  void release(std::int32_t layer, std::int32_t expert);
  void release(std::int32_t layer);
  // Admits experts of the last `route` that were deferred.
  CacheDecision admit();
  // An expert of the last `route`, pinned and resident, waits again: it may be evicted until it is admitted.
  void postpone(std::int32_t layer, std::int32_t expert);

  // From now on so much; what does not fit is evicted. REQUIRES: nothing is in flight or pinned; room for the experts
  // of one token and the predicted reads.
  CacheDecision resize(std::int64_t capacity_bytes);

  // What to read ahead for a layer that will route soon; also keeps what it will likely want from being evicted.
  CacheDecision prefetch(std::int32_t layer, const PredictionHints& hints);

  // What to read into memory that was not used since the cache has this size, when the disk has nothing else to do: an
  // expert of the layer, or of the first one after it that has any on disk, the one that was needed most. Evicts
  // nothing, and is not taken back when its layer routes without it. What becomes free after an eviction is for what
  // the router asks for next.
  CacheDecision fill(std::int32_t layer);

  void arrived(std::int32_t layer, std::int32_t expert);
  // More of a resident expert is read: it is in flight until it has arrived again.
  void reread(std::int32_t layer, std::int32_t expert);
  // A read that failed, or one that was cancelled: the expert is on disk again, the bytes are free.
  void failed(std::int32_t layer, std::int32_t expert);
  void cancelled(std::int32_t layer, std::int32_t expert);

  ExpertState state(std::int32_t layer, std::int32_t expert) const { return at(layer, expert).state; }
  bool is_pinned(std::int32_t layer, std::int32_t expert) const { return at(layer, expert).is_pinned; }
  std::int64_t expert_bytes(std::int32_t layer, std::int32_t expert) const {
    return options_.expert_bytes[slot(layer, expert)];
  }
  std::int64_t used_bytes() const { return used_bytes_; }
  std::int64_t capacity_bytes() const { return options_.capacity_bytes; }
  const ExpertShape& shape() const { return options_.shape; }
  std::span<const ExpertCounters> counters() const { return counters_; }  // of each layer

 private:
  struct Expert {
    ExpertState state = ExpertState::on_disk;
    bool is_pinned = false;
    bool is_predicted = false;  // its layer's next routing likely wants it
    bool is_unused = false;     // read because of a prediction, and not used yet
    bool is_demoted = false;    // its prediction was wrong
  };
  // How often predictions of about the same likelihood came true.
  struct Bin {
    float tries = 0, hits = 0;
  };
  struct Guess {
    std::int32_t expert;
    std::int32_t bin;
  };
  // What goes first of a layer, so that an eviction need not look at all experts of all layers.
  struct First {
    std::size_t slot = 0;
    bool is_stale = true;
  };
  static constexpr std::int32_t kBins = 16;

  std::size_t slot(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(options_.shape.slot(layer, expert));
  }
  // To change it: what would go first of its layer is found anew.
  Expert& at(std::int32_t layer, std::int32_t expert) {
    firsts_[static_cast<std::size_t>(layer)].is_stale = true;
    return experts_[slot(layer, expert)];
  }
  const Expert& at(std::int32_t layer, std::int32_t expert) const { return experts_[slot(layer, expert)]; }
  std::span<double> priorities(std::int32_t layer);
  ExpertRef ref(std::size_t slot) const;

  void verify_prediction(std::int32_t layer, std::span<const std::int32_t> experts);
  void admit_pending();
  void begin_load(std::int32_t layer, std::int32_t expert);
  void begin_prefetch(std::int32_t layer, std::int32_t expert);
  bool make_room(std::int64_t num_bytes, float need_below);
  std::size_t find_victim();
  std::size_t find_victim(std::int32_t layer) const;
  bool goes_before(std::size_t a, std::size_t b) const;
  void forget(std::int32_t layer, std::int32_t expert);
  void rank(std::int32_t layer, std::span<const float> likely);
  Bin& bin(std::int32_t layer, std::int32_t index);
  float probability(std::int32_t layer, std::int32_t index);
  void clear_lists();
  CacheDecision decision() const;

  ExpertCacheOptions options_;
  const std::unique_ptr<EvictionPolicy> policy_;
  const std::unique_ptr<ExpertPredictor> predictor_;
  std::vector<Expert> experts_;
  std::vector<First> firsts_;                // of each layer
  std::vector<double> priorities_;           // the policy's
  std::vector<float> need_;                  // of each expert: how often a visit of its layer has lately chosen it
  std::vector<Bin> bins_;                    // [layer][kBins]
  std::vector<std::vector<Guess>> guesses_;  // of each layer: its open prediction, the likeliest first
  std::vector<float> likely_;
  std::vector<ExpertRef> load_, evict_, cancel_;
  std::vector<ExpertRef> pending_;  // of the last route: to be admitted, the next one last
  std::vector<Found> found_;
  std::vector<ExpertCounters> counters_;
  std::int64_t used_bytes_ = 0, prefetch_in_flight_bytes_ = 0;
  std::int64_t least_bytes_ = 0;  // of an expert
  bool has_been_full_ = false;    // something was evicted
};

}  // namespace edgert
