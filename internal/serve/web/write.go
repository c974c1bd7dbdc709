// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// errBusy means that too many expensive requests are answered.
var errBusy = errors.New("vramprof composes too many answers now (try again in a second)")

// errEnding means that the server shuts down.
var errEnding = &requestError{http.StatusServiceUnavailable, "vramprof is ending"}

// requestError is an error that a client caused.
type requestError struct {
	code int
	text string
}

func (e *requestError) Error() string { return e.text }

func badRequest(text string) error { return &requestError{http.StatusBadRequest, text} }
func forbidden(text string) error  { return &requestError{http.StatusForbidden, text} }
func notFound(text string) error   { return &requestError{http.StatusNotFound, text} }

// refuseTime is how long answers are refused when memory becomes scarce.
const refuseTime = 30 * time.Second

// errScarce means that answers are refused for want of memory.
var errScarce = errors.New("vramprof has little memory left, and composes no answers for a while (raise --max-memory)")

// tooMuch is the error of a client that has used up its budget.
type tooMuch struct{ wait time.Duration }

func (e *tooMuch) seconds() int { return int(math.Ceil(e.wait.Seconds())) }

func (e *tooMuch) Error() string {
	return fmt.Sprintf("answers to you have taken much of a processor (ask again in %d s, or ask for less)", e.seconds())
}

// retryAfter tells a client when to ask again.
func retryAfter(w http.ResponseWriter, seconds int) {
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
}

// busy answers that there are too many requests.
func busy(w http.ResponseWriter) {
	retryAfter(w, 1)
	http.Error(w, "vramprof answers too many requests now.", http.StatusServiceUnavailable)
}

// writeError answers with an error. Its text may quote the request or names of traced processes.
func writeError(w http.ResponseWriter, err error) {
	var request *requestError
	var costly *tooMuch
	switch {
	case errors.As(err, &costly):
		retryAfter(w, costly.seconds())
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.As(err, &request):
		http.Error(w, untrusted.Clean(request.text), request.code)
	case errors.Is(err, errScarce):
		retryAfter(w, int(refuseTime.Seconds()))
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, errBusy):
		retryAfter(w, 1)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, context.Canceled): // nobody reads it
	default:
		http.Error(w, untrusted.Clean(err.Error()), http.StatusInternalServerError)
	}
}

// writeBody answers with a body of a known length.
func writeBody(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
