package api

import "github.com/billethq/billet/internal/model"

// OnTerms is a workspace that was lent to a client, and on which terms.
type OnTerms struct {
	Workspace Workspace
	Terms     model.Terms
}
