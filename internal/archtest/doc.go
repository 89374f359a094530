// Package archtest holds the rules of this house and fails when one is broken.
//
// Each rule is a function over the parsed source of the whole repository, with
// the reason it exists. What a rule allows is written in the tables of
// table.go, each entry with its own reason. testdata has an archive per rule
// with code that breaks it, because a rule that cannot fail guards nothing.
//
//	go test ./internal/archtest
package archtest

// rule is one law of the house.
type rule struct {
	name  string
	why   string
	check func(*tree) []string // what breaks it, one line each, positions first
}

// rules lists every rule: first those about imports, then those about code,
// then those that hold code and documents together.
func rules() []rule {
	return []rule{
		{"down", "imports point down only: what is below can be understood, tested and replaced without what is above", checkDown},
		{"map", "a map that shows another house than the one that stands misleads", checkMap},
		{"adapters", "only daemon names adapters: everything else speaks to the port, so that an adapter can be exchanged", checkAdapters},
		{"testonly", "what exists for tests never reaches a shipped binary", checkTestOnly},
		{"confined", "a module that we take has one place where its types are known, so that it can be replaced there", checkConfined},
		{"pure", "the core is a function of its arguments, so that it can be simulated, replayed and searched for counter-examples", checkPure},
		{"init", "init runs in an order nobody reads and cannot fail or be left out of a test", checkInit},
		{"globals", "a package-level variable that changes is shared by every test and every caller", checkGlobals},
		{"comment", "a package is a noun with one sentence of purpose", checkComment},
		{"names", "a package named after nothing collects everything", checkNames},
		{"size", "a file has one subject; a long one has several, or a reason", checkSize},
		{"clock", "time comes from one clock, so that a test can own it", checkClock},
		{"sleep", "a test that sleeps hopes; it waits by a channel, synctest's time or, for other processes, testenv.Await", checkSleep},
		{"logger", "a logger is passed in, so that tests can read it and its records carry who speaks", checkLogger},
		{"messages", "an error reads as one sentence after it was wrapped: it says what was being done", checkMessages},
		{"lists", "a constant that its list forgot is seen by no test that goes through the list", checkLists},
		{"failpoints", "a step that no code reaches is a fault that no test injects", checkFailpoints},
		{"kinds", "every kind of error has an answer for programs: an HTTP status and an exit code", checkKinds},
		{"invariants", "an invariant is numbered and some test says that it tries to break it", checkInvariants},
		{"decisions", "a decision says its context, the choice and what it costs, on one page", checkDecisions},
	}
}
