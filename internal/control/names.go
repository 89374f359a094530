package control

import "math/rand/v2"

// generateName returns a name that is easy to say: about 160,000 of them; a
// taken one is refused by the ledger like any other.
func generateName() string {
	adjectives := []string{"amber", "brave", "calm", "clever", "cosy", "eager", "fair", "fresh", "gentle", "happy", "keen", "light", "lucky", "mellow", "neat", "proud", "quick", "quiet", "sunny", "swift"}
	nouns := []string{"acorn", "badger", "brook", "cedar", "comet", "falcon", "fern", "heron", "lark", "maple", "otter", "pebble", "pine", "raven", "river", "sparrow", "stone", "tulip", "willow", "wren"}
	const tail = "abcdefghjkmnpqrstuvwxyz23456789"
	pick := func(s []string) string { return s[rand.N(len(s))] }
	return pick(adjectives) + "-" + pick(nouns) + "-" + string(tail[rand.N(len(tail))]) + string(tail[rand.N(len(tail))])
}
