# SPDX-License-Identifier: Apache-2.0
module TartanChainRulesCoreExt

using ChainRulesCore, Tartan
include("chain_rules.jl")

end
