package road

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/billethq/billet/internal/errs"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testKey() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, 32)) }

func TestTicket_RoundTripAndExpiry(t *testing.T) {
	key := testKey()
	want := Ticket{Deployment: "d", Node: "n", Target: TargetAgent, Instance: "i", Epoch: 9, Tenant: "t", Principal: "p", Expires: now.Add(time.Minute)}
	text, err := Sign(key, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Verify(key.Public().(ed25519.PublicKey), text, now)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := Verify(key.Public().(ed25519.PublicKey), text, want.Expires); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("at its expiry: got %v, want unauthenticated", err)
	}
}

// A ticket with any one byte changed opens nothing.
func TestTicket_EveryFlippedByteIsRefused(t *testing.T) {
	key := testKey()
	text, err := Sign(key, Ticket{Node: "n", Target: TargetAgent, Expires: now.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		b := []byte(text)
		b[i] ^= 1
		got, err := Verify(key.Public().(ed25519.PublicKey), string(b), now)
		if err == nil && !cmp.Equal(got, Ticket{}) && string(b) != text {
			// base64's last character may carry unused bits: then the bytes
			// that were signed are the same ones.
			if i != len(text)-1 && text[i+1] != '.' {
				t.Errorf("byte %d flipped: accepted as %+v", i, got)
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	key := testKey()
	good, err := Sign(key, Ticket{Node: "n", Target: TargetAgent, Expires: now.Add(time.Hour)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("")
	f.Add(".")
	f.Add("e30.e30")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := Verify(key.Public().(ed25519.PublicKey), s, now); err == nil && len(s) < len(good)-2 {
			t.Errorf("%q accepted", s)
		}
	})
}
