// What connects the ranks, and how long a collective takes on it: the ring's closed form, a latency and a
// part of the bytes over the bandwidth for each of its steps.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/parallel/comm/comm.h"

namespace gradus {

struct Link {
  double latency = 0;       // seconds a message
  double bandwidth = 1e30;  // bytes a second, each way
};

// Ranks on one link; or, if per_node > 0, nodes of so many ranks, each with a link of its own to other nodes.
struct Network {
  std::string name, source;  // where the figures are published
  Link link;
  int64_t per_node = 0;
  Link between = {};  // nodes
};
const std::vector<Network>& published_networks();
const Network& network_called(std::string_view name);  // an error that lists them

// Refuses ranks that do not fill the network's nodes.
void check_ranks(const Network& network, int64_t ranks);

// With `bytes` for all that is summed, gathered or sent: reduce-scatter and all-gather (N-1) (latency + bytes
// / N / bandwidth), all-reduce both, broadcast (N-1) latency + bytes / bandwidth, barrier an all-reduce of
// nothing; a split takes no time. Over nodes with g of the ranks each: within them first, of all bytes, then
// between the nodes, of 1/g of them (a broadcast: of all). Where nodes have different numbers of them: one
// ring over the links between nodes. `ranks`: who takes part; rank r is in node r / per_node.
double collective_seconds(const Network& network, Collective what, const std::vector<int64_t>& ranks,
                          double bytes);
// The same of ranks 0 to ranks - 1, which must fill the nodes.
double collective_seconds(const Network& network, Collective what, int64_t ranks, double bytes);
// A message between two ranks.
double message_seconds(const Network& network, int64_t from, int64_t to, double bytes);

}  // namespace gradus
