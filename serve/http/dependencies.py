"""FastAPI dependencies of the routes: the caller, the current services and their variants."""

from typing import Annotated

from fastapi import Depends, Request

from serve.http.caller import Caller, identify_caller
from serve.services import Services
from serve.variants import Variants, current_variants

CurrentCaller = Annotated[Caller, Depends(identify_caller)]


async def current_services(request: Request) -> Services:
    """The application's services. This function is async, so it needs no thread.

    Questions and probes are therefore answered even while all threads wait for the store.
    """
    services: Services = request.app.state.services
    return services


async def variants_of_request(request: Request) -> Variants:
    return current_variants(request.app)


CurrentServices = Annotated[Services, Depends(current_services)]
CurrentVariants = Annotated[Variants, Depends(variants_of_request)]
