"""What this project is about: questions of customers."""

TICKETS = {
    "ticket-parcel": "My parcel is late. Where is it?",
    "ticket-refund": "The lamp arrived broken. I want my money back.",
    "ticket-invoice": "Please send the invoice of March again.",
}
