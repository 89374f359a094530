// Package volume keeps a disk as a chain of content-addressed blocks.
//
// A volume is a root; a root names leaves; a leaf names blocks of 1 MiB. Every
// object is named by the BLAKE3 of its content and verified against that name
// on every fetch, so what a reader is given is either what a writer stored or
// an error, never something in between and never zeros in its place.
//
// The parts, from the store up:
//
//	Domains   the keys under which content is hashed
//	Store     blocks, leaves and roots over a blob.Bucket
//	Manifest  one root in memory: block index → entry
//	Cache     verified raw blocks on this host's disk, shared by its processes
//	Fetcher   the read path: cache in front, single flight, priorities
//
// The formats are durable: a golden test under testdata fails when one of them
// changes. docs/decisions/0002-volume-format.md gives the reasons.
package volume
